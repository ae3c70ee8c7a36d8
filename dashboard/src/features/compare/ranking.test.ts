import { expect, it } from "vitest";
import type { Summary } from "@/api/summaries";
import type { Described } from "@/lib/series";
import { summary } from "@/testing/series";
import { mainMetric, rowsOf, sorted, winners } from "./ranking";

const LOWER = { direction: "lower" } as const;
const HIGHER = { direction: "higher" } as const;
const NONE = { direction: "none" } as const;

const found = (name: string, last: number, best: number | null): [string, Summary] => [
  name,
  { ...summary(name, { best }), last },
];
const byJob = new Map([
  ["a", new Map([found("eval/loss", 3, 1), found("eval/accuracy", 0.5, 0.7), found("train/lr", 1, null)])],
  ["b", new Map([found("eval/loss", Number.NaN, 2), found("eval/accuracy", 0.6, 0.9)])],
  ["c", new Map([found("eval/loss", 2, 1)])],
]);
const jobs = ["a", "b", "c"];

const series = (name: string, changes: Partial<Described> = {}): Described => ({ ...summary(name), ...changes });

it.each<[Described[], string | undefined]>([
  [[series("train/loss", LOWER), series("eval/x"), series("eval/loss", { ...LOWER, group: "eval" })], "eval/loss"],
  [[series("lr"), series("val", HIGHER), series("other", LOWER)], "val"],
  // The words of a name say nothing.
  [[series("x"), series("loss"), series("accuracy")], "x"],
  [[], undefined],
])("shows the series with a direction first: %#", (all, main) => {
  expect(mainMetric(all)).toBe(main);
});

it("names all winners where they are equal, and none without a direction or where one job has the series", () => {
  expect([...winners(LOWER, rowsOf("eval/loss", jobs, byJob))]).toEqual(["a", "c"]);
  expect([...winners(HIGHER, rowsOf("eval/accuracy", jobs, byJob))]).toEqual(["b"]);
  expect(winners(NONE, rowsOf("eval/loss", jobs, byJob)).size).toBe(0);
  expect(winners(LOWER, rowsOf("train/lr", jobs, byJob)).size).toBe(0);
  expect(winners(LOWER, rowsOf("eval/loss", ["a"], byJob)).size).toBe(0);
});

it("sorts in both directions with what is no number at the end", () => {
  const order = (column: "last" | "best", isDescending: boolean) =>
    sorted(rowsOf("eval/loss", jobs, byJob), column, isDescending).map(({ job }) => job);
  expect(order("last", false)).toEqual(["c", "a", "b"]);
  expect(order("last", true)).toEqual(["a", "c", "b"]);
  expect(order("best", true)).toEqual(["b", "a", "c"]);
});
