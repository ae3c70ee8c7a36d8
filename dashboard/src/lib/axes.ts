/**
 * The axes that curves can lie along, which of them jobs have in common, and how much of an axis one step is.
 *
 * Samples are steps times the batch: exact, because the batch of a step is a promise that holds for the job's whole life.
 * Only the last step of a run over epochs may have fewer. Tokens are samples times the length of a window, padding of a
 * text's last window included; a task of one's own may give samples of any length, so there are none of it. The fraction
 * of a run is steps divided by those that it plans, or by its last one.
 */

export const AXES = ["step", "samples", "tokens", "fraction", "relative", "wall"] as const;
export type Axis = (typeof AXES)[number];

/** What one step is. Left out is what is not certain. */
export interface PerStep {
  samples?: number;
  tokens?: number;
  fraction?: number;
}

/** As the axis itself is called. */
export const TITLES: Readonly<Record<Axis, string>> = {
  step: "step",
  samples: "samples",
  tokens: "tokens",
  fraction: "fraction of the run",
  relative: "time since the start",
  wall: "wall time",
};

/** The tasks whose samples are windows of tokens, and how long these are where a spec does not say. */
export const WINDOWS: Readonly<Record<string, number>> = { causal_lm: 128, hf_causal_lm: 512 };

export interface Paced {
  plan?: { batch_size: number; steps?: number | null } | null;
  progress?: { step: number; steps: number | null } | null;
  /** As it was submitted. */
  spec?: Readonly<Record<string, unknown>>;
}

export function perStepOf({ plan, spec, progress }: Paced): PerStep {
  const steps = plan?.steps ?? progress?.steps ?? progress?.step ?? 0;
  const fraction = steps > 0 ? { fraction: 1 / steps } : {};
  if (!plan) return fraction;
  const window = windowOf(spec?.train);
  const samples = plan.batch_size;
  return window === null ? { samples, ...fraction } : { samples, tokens: samples * window, ...fraction };
}

function windowOf(train: unknown): number | null {
  if (!isRecord(train) || typeof train.task !== "string" || !Object.hasOwn(WINDOWS, train.task)) return null;
  const args = train.task_args ?? {};
  if (!isRecord(args)) return null;
  const window = args.context ?? WINDOWS[train.task];
  return typeof window === "number" && Number.isInteger(window) && window > 0 ? window : null;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Those along which every one of the jobs can be drawn. Fractions say something only about several of them. */
export function axesOf(jobs: readonly PerStep[]): Axis[] {
  return AXES.filter((axis) => {
    if (axis === "fraction") return jobs.length > 1;
    return isTime(axis) || jobs.every((job) => unitsPerStep(axis, job) !== null);
  });
}

/** Null along time, where steps do not lie evenly, and where it is not known. */
export function unitsPerStep(axis: Axis, perStep: PerStep): number | null {
  if (axis === "step") return 1;
  return isTime(axis) ? null : (perStep[axis] ?? null);
}

export function isTime(axis: Axis): axis is "relative" | "wall" {
  return axis === "relative" || axis === "wall";
}
