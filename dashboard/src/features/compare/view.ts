/** What is compared, and how it is looked at, as the address keeps it: `?jobs=a,b&hidden=b&smoothing=0.6&axis=wall`. */
import type { Axis } from "@/lib/curves";

export interface Comparison {
  /** Ids, with commas between them; a list is taken too. */
  jobs?: string | string[];
  hidden?: string;
  /** Left out where it is off. */
  smoothing?: number;
  /** Left out where it is the step. */
  axis?: Exclude<Axis, "step">;
}

export const MOST_JOBS = 20;

export function readComparison(search: Record<string, unknown>): Comparison {
  const jobs = listed(search.jobs).slice(0, MOST_JOBS);
  const hidden = listed(search.hidden).filter((id) => jobs.includes(id));
  const { smoothing, axis } = search;
  return {
    ...written(jobs, hidden),
    ...(typeof smoothing === "number" && smoothing > 0 && smoothing < 1 ? { smoothing } : {}),
    ...(axis === "relative" || axis === "wall" ? { axis } : {}),
  };
}

export function written(jobs: readonly string[], hidden: readonly string[]): Comparison {
  return {
    ...(jobs.length > 0 ? { jobs: jobs.join(",") } : {}),
    ...(hidden.length > 0 ? { hidden: hidden.join(",") } : {}),
  };
}

/** Each once, in their order. */
export function listed(value: unknown): string[] {
  const parts = Array.isArray(value)
    ? value.map(String)
    : typeof value === "string"
      ? value.split(",")
      : typeof value === "number"
        ? [String(value)]
        : [];
  return [...new Set(parts.map((part) => part.trim()).filter((part) => part !== ""))];
}
