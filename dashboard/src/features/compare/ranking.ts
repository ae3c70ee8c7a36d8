/** The figures of one series side by side: which series first, the best of each job, the order of the rows. */
import type { Summary } from "@/api/summaries";
import type { Described } from "@/lib/series";

export type Column = "last" | "min" | "max" | "best";

export interface Row {
  job: string;
  /** Null without a point of it. */
  summary: Summary | null;
}

/** What people compare first: a series of the evaluation with a direction, else the first one that has any. */
export function mainMetric(series: readonly Described[]): string | undefined {
  const directed = series.filter(({ direction }) => direction !== "none");
  return (directed.find(({ group }) => group === "eval") ?? directed[0] ?? series[0])?.name;
}

export function rowsOf(
  metric: string,
  jobs: readonly string[],
  byJob: ReadonlyMap<string, ReadonlyMap<string, Summary>>,
): Row[] {
  return jobs.map((job) => ({ job, summary: byJob.get(job)?.get(metric) ?? null }));
}

/** Of the jobs with the best value; several where they are equal. */
export function winners({ direction }: Pick<Described, "direction">, rows: readonly Row[]): Set<string> {
  const values = rows.flatMap(({ summary }) => (summary?.best == null ? [] : [summary.best]));
  if (values.length < 2 || direction === "none") return new Set();
  const wanted = direction === "lower" ? Math.min(...values) : Math.max(...values);
  return new Set(rows.filter(({ summary }) => summary?.best === wanted).map(({ job }) => job));
}

/** Rows by a column; what has no value there, or none that is a number, is at the end in both directions. */
export function sorted(rows: readonly Row[], column: Column, isDescending: boolean): Row[] {
  const shown = ({ summary }: Row) => summary?.[column] ?? null;
  return [...rows].sort((a, b) => {
    const first = shown(a);
    const second = shown(b);
    const isNone = [first, second].map((value) => value === null || Number.isNaN(value));
    if (isNone[0] || isNone[1]) return Number(isNone[0]) - Number(isNone[1]);
    return ((first as number) - (second as number)) * (isDescending ? -1 : 1);
  });
}
