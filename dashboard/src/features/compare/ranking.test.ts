import { expect, it } from "vitest";
import type { Summary } from "@/api/series";
import { mainMetric, rowsOf, sorted, winners } from "./ranking";

function summary(last: number, min: number, max: number): Summary {
  return {
    unit: "",
    count: 10,
    figures: { last, lastStep: 9, min, minStep: 1, max, maxStep: 2, nonFinite: 0 },
  };
}

const byJob = new Map([
  [
    "a",
    new Map([
      ["eval/loss", summary(3, 1, 9)],
      ["eval/accuracy", summary(0.5, 0.1, 0.7)],
      ["train/lr", summary(1, 0, 1)],
    ]),
  ],
  [
    "b",
    new Map([
      ["eval/loss", summary(Number.NaN, 2, 8)],
      ["eval/accuracy", summary(0.6, 0.1, 0.9)],
    ]),
  ],
  ["c", new Map([["eval/loss", summary(2, 1, 4)]])],
]);
const jobs = ["a", "b", "c"];

it.each([
  [["train/loss", "eval/accuracy", "eval/loss"], "eval/loss"],
  [["train/lr", "train/loss", "aux/loss"], "train/loss"],
  [["train/lr", "accuracy"], "accuracy"],
  [["system/x", "a"], "a"],
  [[], undefined],
])("of %j, %s is shown first", (names, main) => {
  expect(mainMetric(names)).toBe(main);
});

it("takes as best the lowest loss, the highest accuracy, and nothing of what has no better way", () => {
  expect(rowsOf("eval/loss", jobs, byJob).map(({ best }) => best)).toEqual([1, 2, 1]);
  expect(rowsOf("eval/accuracy", jobs, byJob).map(({ best }) => best)).toEqual([0.7, 0.9, null]);
  expect(rowsOf("train/lr", jobs, byJob).map(({ best }) => best)).toEqual([null, null, null]);
});

it("names all winners where they are equal, and none where only one job has the metric", () => {
  expect([...winners("eval/loss", rowsOf("eval/loss", jobs, byJob))]).toEqual(["a", "c"]);
  expect([...winners("eval/accuracy", rowsOf("eval/accuracy", jobs, byJob))]).toEqual(["b"]);
  expect(winners("train/lr", rowsOf("train/lr", jobs, byJob)).size).toBe(0);
  expect(winners("eval/loss", rowsOf("eval/loss", ["a"], byJob)).size).toBe(0);
});

it("sorts in both directions with what is no number at the end", () => {
  const order = (column: "last" | "best", isDescending: boolean) =>
    sorted(rowsOf("eval/loss", jobs, byJob), column, isDescending).map(({ job }) => job);
  expect(order("last", false)).toEqual(["c", "a", "b"]);
  expect(order("last", true)).toEqual(["a", "c", "b"]);
  expect(order("best", true)).toEqual(["b", "a", "c"]);
});
