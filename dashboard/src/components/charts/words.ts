/** What a chart shows, in words: for those who do not see it, and for names of files. */
import { type Curve, type Figures, figuresOf } from "@/lib/curves";
import { number } from "@/lib/format";

export interface Described {
  name: string;
  curves: readonly Curve[];
}

const JOBS_IN_WORDS = 5;
const AXES = { step: "steps", relative: "time since the start", wall: "time" } as const;

export function described(metric: string, axis: keyof typeof AXES, jobs: readonly Described[]): string {
  const known = jobs
    .map(({ name, curves }) => ({ name, figures: figuresOf(curves) }))
    .filter((job): job is { name: string; figures: Figures } => job.figures !== null);
  if (known.length === 0) return `Line chart of ${metric}: no points yet.`;
  const sentences = known
    .slice(0, JOBS_IN_WORDS)
    .map(
      ({ name, figures }) =>
        `${name}: last ${number(figures.last)} at step ${number(figures.lastStep)}, lowest ${number(figures.min)}, ` +
        `highest ${number(figures.max)}${figures.nonFinite > 0 ? ", not finite in places" : ""}.`,
    );
  const more = known.length - JOBS_IN_WORDS;
  return [
    `Line chart of ${metric} over ${AXES[axis]}.`,
    ...sentences,
    ...(more > 0 ? [`And ${more} more jobs.`] : []),
  ].join(" ");
}

/** "train/loss" of "my job" as `my-job-train-loss`. */
export function fileName(...parts: string[]): string {
  return parts.map((part) => part.replace(/[^\p{L}\p{N}._-]+/gu, "-")).join("-");
}
