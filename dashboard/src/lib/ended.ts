import type { JobState, JobView } from "@/api/generated";

const ENDED: ReadonlySet<JobState> = new Set(["succeeded", "failed", "cancelled"]);

/** Whether nothing of a job changes any more, but for its deletion. */
export function hasEnded({ state }: Pick<JobView, "state">): boolean {
  return ENDED.has(state);
}
