/** Rows of the table: the figure of each run, its difference to the baseline, groups, and their order. */
import type { JobView } from "@/api/generated";
import type { Summary } from "@/api/summaries";
import type { Described } from "@/lib/series";
import { compared, type Settings } from "./settings";
import { type Sort, settingOf } from "./view";

export interface Run {
  job: JobView;
  settings: Settings;
  summary: Summary | null;
  /** The best value where the metric has a direction, else the last; null without one. */
  figure: number | null;
  /** To the baseline; null without one. */
  difference: number | null;
}

export interface RunGroup {
  /** As charts name its line. */
  key: string;
  value: string;
  runs: readonly Run[];
  /** Runs with a figure. */
  count: number;
  mean: number | null;
  low: number | null;
  high: number | null;
  difference: number | null;
}

export const NOT_SET = "not set";

/** What people compare first: a series of the evaluation with a direction, else the first one that has any. */
export function mainMetric(series: readonly Described[]): string | undefined {
  const directed = series.filter(({ direction }) => direction !== "none");
  return (directed.find(({ group }) => group === "eval") ?? directed[0] ?? series[0])?.name;
}

export function runsOf(
  jobs: readonly JobView[],
  settings: ReadonlyMap<string, Settings>,
  metric: Described | undefined,
  byJob: ReadonlyMap<string, ReadonlyMap<string, Summary>>,
  baseline: string | undefined,
): Run[] {
  const summaryOf = (id: string) => (metric === undefined ? null : (byJob.get(id)?.get(metric.name) ?? null));
  const figureOf = (summary: Summary | null) =>
    summary === null ? null : metric?.direction === "none" ? summary.last : summary.best;
  const base = baseline === undefined ? null : figureOf(summaryOf(baseline));
  return jobs.map((job) => {
    const summary = summaryOf(job.id);
    const figure = figureOf(summary);
    return {
      job,
      settings: settings.get(job.id) ?? new Map(),
      summary,
      figure,
      difference: job.id === baseline ? null : differenceOf(figure, base),
    };
  });
}

/** Null where one of them is no number: there is no distance to it. */
function differenceOf(figure: number | null, base: number | null): number | null {
  if (figure === null || base === null) return null;
  return Number.isFinite(figure - base) ? figure - base : null;
}

/** The best of the figures first; in the order of the address where there is no best. */
export function usualSort(direction: Described["direction"] | undefined): Sort | null {
  if (direction === undefined || direction === "none") return null;
  return { by: "figure", isDescending: direction === "higher" };
}

/** Equal rows stay in the order of the address; without a value, or with one that is no number, they are last. */
export function sorted(runs: readonly Run[], sort: Sort | null): Run[] {
  if (sort === null) return [...runs];
  return [...runs].sort((a, b) => inOrder(valueIn(a, sort.by), valueIn(b, sort.by), sort.isDescending));
}

type Value = number | string | null | undefined;

function valueIn({ job, settings, summary, figure, difference }: Run, by: string): Value {
  const path = settingOf(by);
  if (path !== null) return settings.get(path);
  if (by === "figure") return figure;
  if (by === "difference") return difference;
  if (by === "step") return summary?.last_step;
  return by === "state" ? job.state : job.name;
}

function inOrder(one: Value, other: Value, isDescending: boolean): number {
  const isNone = [one, other].map((value) => value == null || Number.isNaN(value));
  if (isNone[0] || isNone[1]) return Number(isNone[0]) - Number(isNone[1]);
  const found =
    typeof one === "number" && typeof other === "number" ? one - other : compared(String(one), String(other));
  return isDescending ? -found : found;
}

/** By the values of a setting or a label, in their order. A hidden run is in its group, and not in its figures. */
export function groupsOf(runs: readonly Run[], by: string, hidden: ReadonlySet<string>, base: Run | null): RunGroup[] {
  const values = new Map<string | undefined, Run[]>();
  for (const run of runs) {
    const value = run.settings.get(by);
    values.set(value, [...(values.get(value) ?? []), run]);
  }
  return [...values]
    .sort(([one], [other]) => compared(one, other))
    .map(([value, own]) => {
      const figures = own.flatMap(({ job, figure }) =>
        figure === null || !Number.isFinite(figure) || hidden.has(job.id) ? [] : [figure],
      );
      const mean = figures.length === 0 ? null : figures.reduce((sum, each) => sum + each, 0) / figures.length;
      return {
        key: value === undefined ? "group" : `group:${value}`,
        value: value ?? NOT_SET,
        runs: own,
        count: figures.length,
        mean,
        low: figures.length === 0 ? null : Math.min(...figures),
        high: figures.length === 0 ? null : Math.max(...figures),
        difference: differenceOf(mean, base?.figure ?? null),
      };
    });
}

/** By their means where rows are sorted by a figure; else in the order of their values. */
export function sortedGroups(groups: readonly RunGroup[], sort: Sort | null): RunGroup[] {
  if (sort?.by !== "figure" && sort?.by !== "difference") return [...groups];
  return [...groups].sort((a, b) => inOrder(a.mean, b.mean, sort.isDescending));
}
