/** Which part of a job's page is open, as the address keeps it. */
export interface JobTab {
  tab?: string;
}

export function readJobTab(search: Record<string, unknown>): JobTab {
  return typeof search.tab === "string" ? { tab: search.tab } : {};
}
