import { expect, it } from "vitest";
import type { ListedJob } from "@/api/generated";
import { aJob, PROGRESS } from "@/testing/jobs";
import { askedOf, columnsOf, metricOf, metricsIn, movedTo, usualIds, valueIn, withColumn } from "./columns";

const sweep = (lr: number, more: object = {}) =>
  aJob({ spec: { train: { optimizer: { lr, kind: "adamw" }, steps: 10 } }, ...more });

it("shows no column of what all rows share", () => {
  const alike = [sweep(1e-3), sweep(1e-3)];
  expect(usualIds(alike)).toEqual(["state", "progress", "left", "gpus", "node", "started", "duration"]);
  const differing = [
    sweep(1e-3, { owner: "ada", project: "nlp", progress: { ...PROGRESS, main: "loss" } }),
    sweep(2e-3, { owner: "ben" }),
  ];
  expect(usualIds(differing)).toEqual([
    ...["state", "progress", "left", "gpus", "node", "curve", "setting:train.optimizer.lr"],
    ...["owner", "project", "started", "duration"],
  ]);
});

it("takes settings by itself only if half of the rows have them, and at most two short ones", () => {
  const jobs = [1, 2, 3, 4].map((n) =>
    aJob({
      spec: { env: { A: `${n}`, B: `${n % 2}`, C: `${n}`, LONG: "x".repeat(20 + n), ...(n < 2 ? { RARE: n } : {}) } },
    }),
  );
  expect(usualIds(jobs).filter((id) => id.startsWith("setting:"))).toEqual(["setting:env.A", "setting:env.C"]);
});

it("puts a column where the usual order has it, and moves it from there", () => {
  const added = ["duration", "setting:lr", "gpus", "metric:val/loss:min", "name", "gpus", "owner"];
  const ids = added.reduce<string[]>(withColumn, []);
  expect(ids).toEqual(["gpus", "setting:lr", "metric:val/loss:min", "owner", "duration"]);
  const moved = movedTo(movedTo(ids, "duration", 0), "gpus", 4);
  expect(moved).toEqual(["duration", "setting:lr", "metric:val/loss:min", "owner", "gpus"]);
  expect(withColumn(moved, "state")[0]).toBe("state");
  // Another order of columns is no other request.
  expect(askedOf(moved)).toEqual(askedOf(ids.toReversed()));
});

it("names columns as short as they differ, and sorts by the service's name", () => {
  const ids = ["setting:train.optimizer.lr", "setting:args.lr", "setting:env.SEED", "metric:val/loss:min", "curve"];
  const jobs = [aJob({ progress: { ...PROGRESS, main: "val/loss" } }), aJob()];
  expect(columnsOf(ids, jobs).map(({ label, sort }) => [label, sort])).toEqual([
    ["optimizer.lr", "setting:train.optimizer.lr"],
    ["args.lr", "setting:args.lr"],
    ["SEED", "setting:env.SEED"],
    ["val/loss lowest", "metric:val/loss:min"],
    ["val/loss", "metric:val/loss:last"],
  ]);
  const mixed = [...jobs, aJob({ progress: { ...PROGRESS, main: "reward" } })];
  expect(columnsOf(["curve"], mixed).map(({ label, sort }) => [label, sort])).toEqual([["Metric", undefined]]);
});

it("reads names of metrics that have colons of their own", () => {
  expect(metricOf("metric:a:b:max")).toEqual({ name: "a:b", part: "max" });
  expect([metricOf("gpus"), metricOf("setting:metric")]).toEqual([null, null]);
  const latest = { "val/loss": 1, "system/gpu": 2 };
  expect(metricsIn([aJob({ progress: { ...PROGRESS, latest } }), aJob()])).toEqual(["val/loss"]);
});

it("finds the value of a column by its whole or its short name", () => {
  const values = { "setting:train.optimizer.lr": 0.002, "metric:score:last": "NaN" };
  const job: ListedJob = { ...sweep(1e-3), values };
  expect(["setting:train.optimizer.lr", "lr", "score", "metric:score:min"].map((id) => valueIn(job, id))).toEqual([
    0.002,
    0.002,
    "NaN",
    undefined,
  ]);
  // Before the service has been asked for it.
  expect(valueIn(sweep(1e-3), "setting:train.optimizer.lr")).toBe("0.001");
});
