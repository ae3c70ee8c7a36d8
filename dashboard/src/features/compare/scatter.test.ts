import { expect, it } from "vitest";
import { aJob } from "@/testing/jobs";
import { summary } from "@/testing/series";
import { runsOf } from "./runs";
import { scatterOf, shareOn } from "./scatter";

const LOSS = { ...summary("loss"), direction: "lower" as const };
const TIME = { ...summary("seconds"), direction: "none" as const };

/** Each with a rate, a best loss, and the last value of a metric without a direction. */
function scattered(by: string, all: readonly (readonly [rate: string | null, loss: number, seconds: number])[]) {
  const jobs = all.map((_, place) => aJob({ id: `${place}`, name: `run-${place}` }));
  const settings = new Map(all.map(([rate], place) => [`${place}`, new Map(rate === null ? [] : [["args.lr", rate]])]));
  const byJob = new Map(
    all.map(([, best, last], place) => [
      `${place}`,
      new Map([
        ["loss", { ...summary("loss", { best }), last: best }],
        ["seconds", { ...summary("seconds", { best: null }), last }],
      ]),
    ]),
  );
  return scatterOf(runsOf(jobs, settings, LOSS, byJob, undefined), by, LOSS, [LOSS, TIME], byJob);
}

it("has a point for each run with both values, from left to right, on a logarithmic axis where they lie far apart", () => {
  const found = scattered("args.lr", [
    ["1e-1", 2, 1],
    ["0.001", 3, 1],
    [null, 4, 1],
    ["1e-2", Number.NaN, 1],
    ["0.001", 1, 1],
  ]);
  expect(found.dots.map(({ run, x, y }) => [run.job.name, x, y])).toEqual([
    ["run-4", 0.001, 1],
    ["run-1", 0.001, 3],
    ["run-0", 0.1, 2],
  ]);
  expect(found.left).toBe(2);
  expect([found.x.title, found.x.isLog, found.y.title, found.y.isLog]).toEqual(["lr", true, "best loss", false]);
  expect(found.x.ticks.map(({ label }) => label)).toEqual(["0.001", "0.010", "0.100"]);
  // Equal ratios are equal distances.
  const at = (value: number) => shareOn(found.x, value);
  expect(at(0.01) - at(0.001)).toBeCloseTo(at(0.1) - at(0.01), 12);
});

it("has texts side by side, and another metric as its axis", () => {
  const named = scattered("args.lr", [
    ["cosine", 2, 5],
    ["linear", 1, 7],
    ["cosine", 3, 9],
  ]);
  expect(named.dots.map(({ run, x }) => [run.job.id, x])).toEqual([
    ["0", 0],
    ["2", 0],
    ["1", 1],
  ]);
  expect(named.x.ticks).toEqual([
    { at: 0, label: "cosine" },
    { at: 1, label: "linear" },
  ]);
  const other = scattered("metric:seconds", [
    ["1", 2, 5],
    ["2", 1, 7],
  ]);
  expect([other.x.title, other.dots.map(({ x, y }) => [x, y])]).toEqual([
    "seconds",
    [
      [5, 2],
      [7, 1],
    ],
  ]);
  expect(scattered("metric:gone", [["1", 2, 5]]).left).toBe(1);
});
