import { expect, it } from "vitest";
import { asked, hasAll, wordsOf } from "./search";

const job = { id: "01a201d6-041d-7787-80c4-00a52f02a2d6", name: "GPT-128-wide" };

it.each([
  ["", true],
  ["gpt", true],
  ["  wide  GPT ", true],
  ["2f02a2d6", true],
  ["01a2 gpt", true],
  ["gpt deep", false],
  ["0080c4", false],
])("“%s” finds it: %s", (typed, isFound) => {
  expect(hasAll(job, wordsOf(typed))).toBe(isFound);
});

it("asks the service for the longest word, and for none where nothing is typed", () => {
  expect(asked(wordsOf("a wide one"))).toBe("wide");
  expect(asked(wordsOf("   "))).toBeUndefined();
});
