/** What is compared, and how it is looked at, as the address keeps it: `?jobs=a,b&hidden=b&smoothing=0.6&axis=wall`. */
import { listed } from "@/lib/listed";
import { type Look, readLook } from "@/lib/look";

export interface Comparison extends Look {
  /** Ids, with commas between them; a list is taken too. */
  jobs?: string | string[];
  hidden?: string;
}

export const MOST_JOBS = 20;

export function readComparison(search: Record<string, unknown>): Comparison {
  const jobs = listed(search.jobs).slice(0, MOST_JOBS);
  const hidden = listed(search.hidden).filter((id) => jobs.includes(id));
  return { ...written(jobs, hidden), ...readLook(search) };
}

export function written(jobs: readonly string[], hidden: readonly string[]): Comparison {
  return {
    ...(jobs.length > 0 ? { jobs: jobs.join(",") } : {}),
    ...(hidden.length > 0 ? { hidden: hidden.join(",") } : {}),
  };
}
