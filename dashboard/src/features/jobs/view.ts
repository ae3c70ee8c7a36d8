/** What the list of jobs shows, as the address keeps it. */
import type { JobState } from "@/api/generated";

export interface JobsView {
  state?: JobState[];
  search?: string;
  label?: string[];
}

export function readJobsView(search: Record<string, unknown>): JobsView {
  return search as JobsView;
}
