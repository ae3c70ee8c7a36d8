import { expect, it } from "vitest";
import type { Summary } from "@/api/summaries";
import type { Described } from "@/lib/series";
import { aJob } from "@/testing/jobs";
import { randomFrom } from "@/testing/random";
import { summary } from "@/testing/series";
import { groupsOf, mainMetric, type Run, runsOf, sorted, sortedGroups, usualSort } from "./runs";
import type { Sort } from "./view";

const series = (name: string, changes: Partial<Described> = {}): Described => ({ ...summary(name), ...changes });
const LOWER = { direction: "lower" } as const;

it.each<[Described[], string | undefined]>([
  [[series("train/loss", LOWER), series("eval/x"), series("eval/loss", { ...LOWER, group: "eval" })], "eval/loss"],
  [[series("lr"), series("val", { direction: "higher" }), series("other", LOWER)], "val"],
  // The words of a name say nothing.
  [[series("x"), series("loss"), series("accuracy")], "x"],
  [[], undefined],
])("shows the series with a direction first: %#", (all, main) => {
  expect(mainMetric(all)).toBe(main);
});

function some(direction: Described["direction"], baseline?: string): Run[] {
  const found = (last: number, best: number | null): Map<string, Summary> =>
    new Map([["loss", { ...summary("loss", { best, last_step: 10 * last }), last }]]);
  const byJob = new Map([
    ["a", found(3, 1)],
    ["b", found(Number.NaN, 2)],
    ["c", found(2, 1.5)],
  ]);
  const jobs = ["a", "b", "c", "d"].map((id) => aJob({ id, name: `run-${id}` }));
  const settings = new Map(jobs.map(({ id }, place) => [id, new Map(place < 3 ? [["lr", `${place % 2}`]] : [])]));
  return runsOf(jobs, settings, series("loss", { direction }), byJob, baseline);
}

it("has the best figure where there is a direction, else the last, and the difference to the baseline", () => {
  expect(some("lower", "c").map(({ figure, difference }) => [figure, difference])).toEqual([
    [1, -0.5],
    [2, 0.5],
    [1.5, null],
    [null, null],
  ]);
  expect(some("none", "a").map(({ figure, difference }) => [figure, difference])).toEqual([
    [3, null],
    [Number.NaN, null],
    [2, -1],
    [null, null],
  ]);
});

it.each<[Sort | null, string]>([
  [null, "abcd"],
  [usualSort("lower"), "acbd"],
  [usualSort("higher"), "bcad"],
  [{ by: "step", isDescending: false }, "cabd"],
  [{ by: "name", isDescending: true }, "dcba"],
  [{ by: "setting:lr", isDescending: true }, "bacd"],
  [{ by: "difference", isDescending: false }, "abcd"],
])("sorts by %j with what has no value at the end: %s", (sort, order) => {
  expect(
    sorted(some("lower", "c"), sort)
      .map(({ job }) => job.id)
      .join(""),
  ).toBe(order);
});

it("agrees with a plain loop about the mean and the range of each group", () => {
  const random = randomFrom(3);
  const runs: Run[] = Array.from({ length: 60 }, (_, place) => ({
    job: aJob({ id: `${place}` }),
    settings: new Map(random() < 0.1 ? [] : [["lr", `${Math.floor(random() * 4)}`]]),
    summary: null,
    figure: random() < 0.1 ? null : random() < 0.1 ? Number.NaN : random(),
    difference: null,
  }));
  const hidden = new Set(runs.filter(() => random() < 0.2).map(({ job }) => job.id));
  const base = { ...(runs[0] as Run), figure: 0.5 };
  const groups = groupsOf(runs, "lr", hidden, base);
  expect(groups.map(({ value }) => value)).toEqual(["0", "1", "2", "3", "not set"]);
  for (const { value, runs: own, count, mean, low, high, difference } of groups) {
    const wanted = value === "not set" ? undefined : value;
    expect(own).toEqual(runs.filter(({ settings }) => settings.get("lr") === wanted));
    const figures: number[] = [];
    for (const { job, figure } of own)
      if (!hidden.has(job.id) && figure !== null && !Number.isNaN(figure)) figures.push(figure);
    expect(count).toBe(figures.length);
    if (figures.length === 0) continue;
    let sum = 0;
    for (const each of figures) sum += each;
    expect(mean).toBeCloseTo(sum / figures.length, 12);
    expect([low, high]).toEqual([Math.min(...figures), Math.max(...figures)]);
    expect(difference).toBeCloseTo((mean as number) - 0.5, 12);
  }
  const means = sortedGroups(groups, { by: "figure", isDescending: true }).map(({ mean }) => mean as number);
  expect(means).toEqual([...means].sort((a, b) => b - a));
});
