import { expect, it } from "vitest";
import { differing, flattened } from "./differing";

it("names values by their path", () => {
  expect([
    ...flattened({
      name: "a",
      train: { lr: 0.1, betas: [0.9, 0.95], init_from: null, task_args: {} },
      deep: { er: { on: true } },
    }),
  ]).toEqual([
    ["name", "a"],
    ["train.lr", "0.1"],
    ["train.betas", "[0.9,0.95]"],
    ["train.init_from", "null"],
    ["train.task_args", "{}"],
    ["deep.er.on", "true"],
  ]);
});

it("keeps only what differs, what is missing somewhere too", () => {
  const documents = [
    { kind: "train", train: { lr: 0.1, seed: 1 } },
    { kind: "train", train: { lr: 0.2, seed: 1 }, labels: { team: "x" } },
    { kind: "train", train: { lr: 0.1, seed: 1 } },
  ];
  expect(differing(documents)).toEqual([
    { path: "train.lr", values: ["0.1", "0.2", "0.1"] },
    { path: "labels.team", values: [undefined, "x", undefined] },
  ]);
});

it("finds nothing between equal documents, one document, or none", () => {
  expect(differing([{ a: [1, { b: 2 }] }, { a: [1, { b: 2 }] }])).toEqual([]);
  expect(differing([{ a: 1 }])).toEqual([]);
  expect(differing([])).toEqual([]);
});
