/** What a row of the list says about a job. Pure; the tests are beside it. */
import type { BatchPlan, JobView } from "@/api/generated";
import { hasEnded } from "@/lib/ended";
import { duration, number, percentDone } from "@/lib/format";

/** "64 = 2 × 8 × 4": ranks (or copies of a cut model), samples, accumulation steps. An equation only where it is one. */
export function planInShort(plan: BatchPlan): string {
  const { batch_size: batch, world_size: ranks, micro_batch_size: micro, accumulation_steps: steps } = plan;
  const copies = ranks / (plan.tensor ?? 1);
  if (micro !== null && steps !== null && copies * micro * steps === batch) {
    return `${number(batch)} = ${copies} × ${micro} × ${steps}`;
  }
  return `${number(batch)} over ${ranks} ${ranks === 1 ? "rank" : "ranks"}`;
}

export interface ProgressWords {
  /** 0 to 1; null where the end is not known. */
  share: number | null;
  steps: string;
  percent: string | null;
  left: string | null;
}

/** Null for a job that has reported no step. */
export function progressWords(job: JobView): ProgressWords | null {
  const { progress } = job;
  if (progress === null) return null;
  const { step, steps, fraction, eta_seconds: eta } = progress;
  return {
    share: fraction,
    steps: steps === null ? `step ${number(step)}` : `${number(step)} / ${number(steps)} steps`,
    percent: fraction === null ? null : percentDone(fraction),
    left: eta === null ? null : `${duration(eta)} left`,
  };
}

/** Why the job failed, or why its last attempt did while it waits to be tried again; null where there is nothing to say. */
export function mishap(job: JobView): { reason: string; message: string } | null {
  const outcome = job.outcome ?? job.attempt?.outcome ?? null;
  if (outcome === null || !(job.state === "failed" || job.state === "queued" || job.state === "starting")) return null;
  return { reason: outcome.reason.replaceAll("_", " "), message: outcome.message };
}

/** How long it waits, runs, or ran. */
export function span(job: JobView, now: number): string {
  const { state, created_at: created, started_at: started, finished_at: finished, attempt } = job;
  const since = (from: string, to: string | null = null) =>
    duration(((to === null ? now : Date.parse(to)) - Date.parse(from)) / 1_000);
  // A job that is tried again waits since its last attempt ended.
  if (state === "queued") return `waits ${since(attempt?.ended_at ?? created)}`;
  if (started === null) return hasEnded(job) ? "never ran" : `starting for ${since(created)}`;
  return hasEnded(job) ? `ran ${since(started, finished)}` : `runs ${since(started)}`;
}
