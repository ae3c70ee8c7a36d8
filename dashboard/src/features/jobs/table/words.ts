/** What a row of the list says about a job. Pure; the tests are beside it. */
import type { BatchPlan, JobTotals, JobView } from "@/api/generated";
import { hasEnded } from "@/lib/ended";
import { duration, number, percentDone } from "@/lib/format";
import { counted, record } from "@/lib/resources";
import { startSentence, startWords } from "@/lib/starting";
import { STATES } from "../view";

/** "64 = 2 × 8 × 4": ranks (or copies of a cut model), samples, accumulation steps. An equation only where it is one. */
export function planInShort(plan: BatchPlan): string {
  const { batch_size: batch, world_size: ranks, copies, micro_batch_size: micro, accumulation_steps: steps } = plan;
  if (micro !== null && steps !== null && copies * micro * steps === batch) {
    return `${number(batch)} = ${copies} × ${micro} × ${steps}`;
  }
  if (copies === ranks) return `${number(batch)} over ${counted(ranks, "rank")}`;
  return `${number(batch)} over ${copies} ${copies === 1 ? "copy" : "copies"}`;
}

export interface ProgressWords {
  /** 0 to 1; null where the end is not known. */
  share: number | null;
  /** "5,000 / 20,000 steps". */
  steps: string;
  percent: string | null;
}

/** Null for a job that has reported no step. */
export function progressWords({ progress }: JobView): ProgressWords | null {
  if (progress === null) return null;
  const { step, steps, fraction } = progress;
  return {
    share: fraction,
    steps: steps === null ? `step ${number(step)}` : `${number(step)} / ${number(steps)} steps`,
    percent: fraction === null ? null : percentDone(fraction),
  };
}

/** How far a job came that does not run: "20,000 steps", "at step 310 of 20,000". */
export function reached({ state, progress }: JobView): string | null {
  if (progress === null) return null;
  const { step, steps } = progress;
  if (state === "succeeded" || steps === null) return `${number(step)} ${step === 1 ? "step" : "steps"}`;
  return `at step ${number(step)} of ${number(steps)}`;
}

/** Why the job failed, or why its last attempt did while it waits to be tried again; null where there is nothing to say. */
export function mishap(job: JobView): { reason: string; message: string } | null {
  const outcome = job.outcome ?? job.attempt?.outcome ?? null;
  if (outcome === null || !(job.state === "failed" || job.state === "queued" || job.state === "starting")) return null;
  return { reason: outcome.reason.replaceAll("_", " "), message: outcome.message };
}

/** Time to the end of a running job, or the likely start of a waiting one; null for another one. */
export function leftWords(job: JobView, now: number): { text: string; title: string } | null {
  const eta = job.progress?.eta_seconds ?? null;
  if (job.state === "running" && eta !== null) {
    return { text: duration(eta), title: `${duration(eta)} left` };
  }
  if (job.queue === null) return null;
  const words = startWords(job.queue, now);
  // The column is narrow, and the reason is in the one before it.
  const text = job.queue.estimated_start == null ? "not known" : words.when.replace("any moment now", "now");
  return { text, title: `starts ${startSentence(words)}` };
}

/** Since its first start, to its end or to now; null before the start. */
export function ranFor({ started_at: started, finished_at: finished }: JobView, now: number): string | null {
  if (started === null) return null;
  return duration(((finished === null ? now : Date.parse(finished)) - Date.parse(started)) / 1_000);
}

/** How long it waits, runs, or ran. */
export function span(job: JobView, now: number): string {
  const { state, created_at: created, attempt } = job;
  const since = (from: string) => duration((now - Date.parse(from)) / 1_000);
  // A job that is tried again waits since its last attempt ended.
  if (state === "queued") return `waits ${since(attempt?.ended_at ?? created)}`;
  const ran = ranFor(job, now);
  if (ran === null) return hasEnded(job) ? "never ran" : `starting for ${since(created)}`;
  return hasEnded(job) ? `ran ${ran}` : `runs ${ran}`;
}

/** "8", or "2–8" before an elastic job has been given its devices. */
export function gpusOf({ spec, attempt, state }: JobView): string {
  if (attempt !== null && (state === "running" || state === "starting")) return number(attempt.world_size);
  const gpus = record(spec.resources).gpus ?? 1;
  if (typeof gpus === "number") return number(gpus);
  const { min, max } = record(gpus);
  return min === max ? String(max) : `${min ?? 1}–${max ?? "?"}`;
}

/** "2 queued, 5 running". */
export function statesInWords(states: JobTotals["states"]): string {
  return STATES.flatMap((state) => (states[state] ? [`${number(states[state])} ${state}`] : [])).join(", ");
}

/** `mix` for a label without a value. */
export function labelWords(key: string, value: string): string {
  return value === "" ? key : `${key}=${value}`;
}
