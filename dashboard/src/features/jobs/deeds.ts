/** Cancelling several jobs: each is asked for by itself, one after the other, and each answer is kept in words. */
import type { JobView } from "@/api/generated";

export interface Answer {
  job: JobView;
  said: string;
  isRefused: boolean;
}

/** One answer per job, in their order; a refusal of one does not keep the others from being asked. */
export async function cancelEach(
  jobs: readonly JobView[],
  cancel: (job: JobView) => Promise<JobView>,
  onAnswer: (answer: Answer) => void,
): Promise<void> {
  for (const job of jobs) {
    try {
      const after = await cancel(job);
      const said = after.state === "cancelled" ? "cancelled" : "asked to stop; it ends when its processes are gone";
      onAnswer({ job, said, isRefused: false });
    } catch (error) {
      onAnswer({ job, said: error instanceof Error ? error.message : String(error), isRefused: true });
    }
  }
}
