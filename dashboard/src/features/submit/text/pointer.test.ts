import { describe, expect, it } from "vitest";
import { dotted, pathOf, placeOf, pointerOf } from "./pointer";
import { readText } from "./read";

const TEXT = `# a comment
name: first
train:
  batch: {size: 64, micro_size: 8} # the promise
  task_args:
    a/b: 1
    c~d: [1, two]
script:
  command:
    - train.py
    - --lr
labels: {}
`;

function marked(pointer: string, text = TEXT): [number, string] {
  const { line, from, to } = placeOf(readText(text), pointer);
  return [line, text.slice(from, to)];
}

describe("the place of a pointer", () => {
  it.each([
    ["/name", 2, "name: first"],
    ["/train", 3, "train"],
    ["/train/batch", 4, "batch"],
    ["/train/batch/micro_size", 4, "micro_size: 8"],
    ["/train/task_args/a~1b", 6, "a/b: 1"],
    ["/train/task_args/c~0d", 7, "c~d"],
    ["/train/task_args/c~0d/1", 7, "two"],
    ["/script/command/1", 11, "--lr"],
    ["/labels", 12, "labels"],
  ])("%s is on line %d: %s", (pointer, line, words) => {
    expect(marked(pointer)).toEqual([line, words]);
  });

  it("of a missing field is its object's name, or what is left of the way to it", () => {
    expect(marked("/train/batch/nothing")).toEqual([4, "batch"]);
    expect(marked("/train/optimizer/lr")).toEqual([3, "train"]);
    expect(marked("/script/command/7")).toEqual([9, "command"]);
    expect(marked("/name/inside/a/text")).toEqual([2, "name: first"]);
  });

  it("of the whole document, and of what its top lacks, is the first line that says something", () => {
    expect(marked("")).toEqual([2, "name: first"]);
    expect(marked("/kind")).toEqual([2, "name: first"]);
    expect(marked("", "")).toEqual([1, ""]);
    expect(marked("", "# only this\n")).toEqual([1, ""]);
  });

  it("stays on one line", () => {
    expect(marked("/a", 'a: "one\n  two"\n')).toEqual([1, 'a: "one']);
  });
});

it("reads and writes pointers, whatever is in a name", () => {
  for (const path of [[], ["train"], ["a/b", "c~d", "~1", ""], ["x", "0"]])
    expect(pathOf(pointerOf(path))).toEqual(path);
  expect(dotted("/train/batch/size")).toBe("train.batch.size");
});
