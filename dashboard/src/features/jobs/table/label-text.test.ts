import { expect, it } from "vitest";
import { labelChanges, labelsText } from "./label-text";

it("edits labels as lines, and asks for what has changed alone", () => {
  const labels = { team: "vision", mix: "", old: "a=b" };
  expect(labelsText(labels)).toBe("team=vision\nmix\nold=a=b");
  expect(labelChanges(labels, labelsText(labels))).toEqual({});
  expect(labelChanges(labels, " team = nlp \n\nmix\nnew")).toEqual({ old: null, team: "nlp", new: "" });
});
