/** What the queue says about itself. Pure; the tests are beside it. */
import type { JobView } from "@/api/generated";

export function queueSentence(count: number, hasMore: boolean): string {
  if (count === 0) return "Nothing waits.";
  if (hasMore) return `The first ${count} jobs that wait.`;
  return count === 1 ? "1 job waits." : `${count} jobs wait.`;
}

/** When the job came into the queue: at its submit, or when its last attempt ended. */
export function waitingSince(job: Pick<JobView, "attempt" | "created_at">): string {
  return job.attempt?.ended_at ?? job.created_at;
}
