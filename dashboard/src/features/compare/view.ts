/** Which jobs are compared and which of them are hidden, as the address keeps it: `?jobs=a,b&hidden=b`. */
export interface Comparison {
  /** Ids, with commas between them; a list is taken too. */
  jobs?: string | string[];
  hidden?: string;
}

export const MOST_JOBS = 20;

export function readComparison(search: Record<string, unknown>): Comparison {
  const jobs = listed(search.jobs).slice(0, MOST_JOBS);
  const hidden = listed(search.hidden).filter((id) => jobs.includes(id));
  return written(jobs, hidden);
}

export function written(jobs: readonly string[], hidden: readonly string[]): Comparison {
  return {
    ...(jobs.length > 0 ? { jobs: jobs.join(",") } : {}),
    ...(hidden.length > 0 ? { hidden: hidden.join(",") } : {}),
  };
}

/** Each once, in their order. */
export function listed(value: unknown): string[] {
  const parts = Array.isArray(value) ? value.map(String) : typeof value === "string" ? value.split(",") : [];
  return [...new Set(parts.map((part) => part.trim()).filter((part) => part !== ""))];
}
