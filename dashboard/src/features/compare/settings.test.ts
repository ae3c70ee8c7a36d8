import { expect, it } from "vitest";
import { columnsOf, compared, settingsOf } from "./settings";

const of = (spec: Record<string, unknown>, labels: Record<string, string> = {}) =>
  Object.fromEntries(settingsOf({ spec, labels }));

it("leaves out ids, digests, uploads and names", () => {
  const spec = {
    name: "a",
    kind: "train",
    project: "nlp",
    priority: 3,
    code: { upload: "0".repeat(64) },
    continues: "01a2",
    secrets: ["s"],
    outputs: { files: ["*.pt"] },
    resources: { gpus: 2 },
    train: { init_from: { job: "01a2" }, optimizer: { lr: 0.1 }, betas: [0.9, 0.99] },
  };
  expect(of(spec, { team: "x" })).toEqual({
    "resources.gpus": "2",
    "train.optimizer.lr": "0.1",
    "train.betas": "[0.9,0.99]",
    "label:team": "x",
  });
});

it.each([
  [["t.py", "--lr", "0.1", "--fast", "--size=3", "data=c4"], { lr: "0.1", fast: "true", size: "3", data: "c4" }],
  [["t.py", "20", "-n", "-3.5", "--", "rest"], { n: "-3.5", "": "20 -- rest" }],
  [["t.py"], {}],
])("reads the arguments %j of a script", (command, args) => {
  const expected = Object.entries(args).map(([key, value]) => [key === "" ? "args" : `args.${key}`, value]);
  expect(of({ script: { command } })).toEqual(Object.fromEntries(expected));
});

it("has a column for each setting in which jobs differ, by the end of its path where that is enough", () => {
  const all = [
    { train: { lr: 1, steps: 5, a: { size: 1 }, b: { size: 1 } } },
    { train: { lr: 2, steps: 5, a: { size: 2 }, b: { size: 2 } } },
    { train: { steps: 5, a: { size: 2 }, b: { size: 1 } } },
  ].map((spec, index) => settingsOf({ spec, labels: { team: `t${index}` } }));
  expect(columnsOf(all)).toEqual([
    { path: "train.lr", title: "lr" },
    { path: "train.a.size", title: "train.a.size" },
    { path: "train.b.size", title: "train.b.size" },
    { path: "label:team", title: "team" },
  ]);
  expect(columnsOf(all.slice(0, 1))).toEqual([]);
});

it("orders numbers by size, before texts, and what is missing last", () => {
  const values = ["b", undefined, "10", "1e-3", "a", "9", ""];
  expect([...values].sort(compared)).toEqual(["1e-3", "9", "10", "", "a", "b", undefined]);
  expect([undefined, "x", "2"].sort(compared)).toEqual(["2", "x", undefined]);
});
