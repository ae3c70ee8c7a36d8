/** The figures of one metric side by side: which metric first, the best of each job, the order of the rows. */
import type { Summary } from "@/api/series";
import type { Figures } from "@/lib/curves";
import { betterWay, groupOf } from "@/lib/metricNames";

export type Column = "last" | "min" | "max" | "best";

export interface Row {
  job: string;
  figures: Figures | null;
  /** The lowest or highest value, whichever is better; null where the name of the metric does not say. */
  best: number | null;
}

/** What people compare first: a loss of the evaluation, then one of the training, then what else says which way is better. */
export function mainMetric(names: readonly string[]): string | undefined {
  const rank = (name: string) => {
    const isLoss = /(^|[/_])loss$/.test(name);
    if (groupOf(name) === "eval") return isLoss ? 0 : 1;
    if (isLoss) return groupOf(name) === "train" ? 2 : 3;
    return betterWay(name) === null ? 5 : 4;
  };
  return [...names].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b))[0];
}

export function rowsOf(
  metric: string,
  jobs: readonly string[],
  byJob: ReadonlyMap<string, ReadonlyMap<string, Summary>>,
): Row[] {
  const way = betterWay(metric);
  return jobs.map((job) => {
    const figures = byJob.get(job)?.get(metric)?.figures ?? null;
    const best = figures === null || way === null ? null : way === "low" ? figures.min : figures.max;
    return { job, figures, best: best !== null && Number.isFinite(best) ? best : null };
  });
}

/** Of the jobs with the best value; several where they are equal. */
export function winners(metric: string, rows: readonly Row[]): Set<string> {
  const values = rows.flatMap(({ best }) => (best === null ? [] : [best]));
  if (values.length < 2) return new Set();
  const wanted = betterWay(metric) === "low" ? Math.min(...values) : Math.max(...values);
  return new Set(rows.filter(({ best }) => best === wanted).map(({ job }) => job));
}

/** Rows by a column; what has no value there, or none that is a number, is at the end in both directions. */
export function sorted(rows: readonly Row[], column: Column, isDescending: boolean): Row[] {
  const shown = ({ figures, best }: Row) => (column === "best" ? best : (figures?.[column] ?? null));
  return [...rows].sort((a, b) => {
    const first = shown(a);
    const second = shown(b);
    const isNone = [first, second].map((value) => value === null || Number.isNaN(value));
    if (isNone[0] || isNone[1]) return Number(isNone[0]) - Number(isNone[1]);
    return ((first as number) - (second as number)) * (isDescending ? -1 : 1);
  });
}
