/** What the queue says about itself. Pure; the tests are beside it. */
import type { JobView } from "@/api/generated";

/** The first page of `listQueue` ends here. */
export const QUEUE_MAX = 500;

export function queueSentence(count: number): string {
  if (count === 0) return "Nothing waits.";
  // A full answer may have more jobs behind it.
  if (count >= QUEUE_MAX) return `The first ${QUEUE_MAX} jobs that wait.`;
  return count === 1 ? "1 job waits." : `${count} jobs wait.`;
}

/** When the job came into the queue: at its submit, or when its last attempt ended. */
export function waitingSince(job: Pick<JobView, "attempt" | "created_at">): string {
  return job.attempt?.ended_at ?? job.created_at;
}
