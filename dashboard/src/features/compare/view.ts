/** Which jobs are compared, as the address keeps it. */
export interface Comparison {
  jobs: string[];
}

export function readComparison(search: Record<string, unknown>): Comparison {
  return { jobs: Array.isArray(search.jobs) ? search.jobs.map(String) : [] };
}
