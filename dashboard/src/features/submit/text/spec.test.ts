import { expect, it } from "vitest";
import { readText } from "./read";
import { specText } from "./spec";

const SPEC = {
  name: "first",
  kind: "train",
  resources: { gpus: 2 },
  train: { task: "causal_lm", task_args: {}, batch: { size: 64, micro_size: "auto" }, steps: 10, seed: 1337 },
  labels: { version: "1.0", note: "a: b # c" },
};

it("writes sections as blocks and the short ones on a line", () => {
  expect(specText(SPEC)).toBe(`name: first
kind: train
resources: {gpus: 2}
train:
  task: causal_lm
  task_args: {}
  batch: {size: 64, micro_size: auto}
  steps: 10
  seed: 1337
labels: {version: "1.0", note: "a: b # c"}
`);
});

it("reads back as what it was, long lists and texts of several lines too", () => {
  const command = Array.from({ length: 40 }, (_, index) => `--option-${index}=${"x".repeat(index)}`);
  const spec = {
    ...SPEC,
    kind: "script",
    script: { command: ["train.py", ...command, "two\nlines"] },
    env: { A: "", B: "null" },
  };
  expect(readText(specText(spec)).value).toEqual(spec);
});
