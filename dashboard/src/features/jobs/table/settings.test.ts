import { expect, it } from "vitest";
import { settingsOf } from "./settings";

// The same spec as in the service's own test, tests/storage/test_lists.py.
it("has the leaves and the arguments of a job, as the service names them", () => {
  const spec = {
    name: "x",
    labels: { a: "b" },
    resources: { gpus: 4, gpu_type: null },
    train: { optimizer: { lr: 3e-4, betas: [0.9, 0.95] }, compile: false, task_args: {} },
    script: { command: ["t.py", "--lr", "1e-3", "-v", "--a=b", "k=2", "--off", "--", "c"] },
    env: { SIZE: "12", NAN: "nan" },
  };
  expect(Object.fromEntries(settingsOf(spec))).toEqual({
    "train.optimizer.lr": "0.0003",
    "train.optimizer.betas": "[0.9,0.95]",
    "train.compile": "false",
    "args.lr": "1e-3",
    "args.v": "true",
    "args.a": "b",
    "args.k": "2",
    "args.off": "true",
    "env.SIZE": "12",
    "env.NAN": "nan",
  });
  expect(settingsOf(spec)).toBe(settingsOf(spec));
  expect(settingsOf({ resources: { gpus: { min: 1, max: 4 } } }).size).toBe(0);
});
