import { expect, it } from "vitest";
import { readSubmitStart } from "./start";

it("reads a job and a checkpoint from the address, also where they look like numbers", () => {
  expect(readSubmitStart({})).toEqual({});
  expect(readSubmitStart({ from: "100", clone: "" })).toEqual({});
  expect(readSubmitStart({ template: "Digits" })).toEqual({ template: "Digits" });
  expect(readSubmitStart({ template: "Digit" })).toEqual({});
  expect(readSubmitStart({ clone: "first" })).toEqual({ clone: "first" });
  expect(readSubmitStart({ clone: 12_345_678, from: 100 })).toEqual({ clone: "12345678", from: "100" });
  expect(readSubmitStart({ clone: "a", from: "best", other: 1 })).toEqual({ clone: "a", from: "best" });
});
