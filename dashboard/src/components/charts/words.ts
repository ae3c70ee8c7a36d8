/** Descriptions of charts, for screen readers and for names of files. */
import type { Axis } from "@/lib/axes";
import { type Curve, type Figures, figuresOf } from "@/lib/curves";
import { duration, moment, number } from "@/lib/format";
import type { Reading } from "@/lib/lines";
import { MARK_KINDS, type Mark, type MarkKind } from "@/lib/marks";
import { measured, type Described as Series } from "@/lib/series";

export interface Described {
  name: string;
  curves: readonly Curve[];
}

const JOBS_IN_WORDS = 5;
const AXES: Readonly<Record<Axis, string>> = {
  step: "steps",
  samples: "samples",
  tokens: "tokens",
  fraction: "the fraction of the run",
  relative: "time since the start",
  wall: "time",
};
const HAPPENED: Readonly<Record<MarkKind, readonly [one: string, several: string]>> = {
  preempted: ["preemption", "preemptions"],
  memory: ["shortage of memory", "shortages of memory"],
  restart: ["restart", "restarts"],
  checkpoint: ["checkpoint", "checkpoints"],
};

export function described(
  { name: metric, ...series }: Series,
  axis: Axis,
  jobs: readonly Described[],
  marks: readonly Mark[] = [],
): string {
  const known = jobs
    .map(({ name, curves }) => ({ name, figures: figuresOf(curves) }))
    .filter((job): job is { name: string; figures: Figures } => job.figures !== null);
  if (known.length === 0) return `Line chart of ${metric}: no points yet.`;
  const sentences = known
    .slice(0, JOBS_IN_WORDS)
    .map(
      ({ name, figures }) =>
        `${name}: last ${measured(figures.last, series)} at step ${number(figures.lastStep)}, lowest ${measured(figures.min, series)}, ` +
        `highest ${measured(figures.max, series)}${figures.nonFinite > 0 ? ", not finite in places" : ""}.`,
    );
  const more = known.length - JOBS_IN_WORDS;
  return [
    `Line chart of ${metric} over ${AXES[axis]}.`,
    ...sentences,
    ...(more > 0 ? [`And ${more} more jobs.`] : []),
    ...(marks.length > 0 ? [`Marked: ${counted(marks)}.`] : []),
  ].join(" ");
}

/** One place of a chart, as it is read aloud: "step 700, 1.25 nats, of run-a". */
export function spoken({ line, index }: Reading, axis: Axis, series: Series, isNamed: boolean): string {
  const { curve, origin } = line;
  const [time, low, high] = [curve.time[index], curve.min[index], curve.max[index]] as [number, number, number];
  const where: Readonly<Record<Axis, string>> = {
    step: `step ${number(curve.step[index] as number)}`,
    samples: `${number(line.x[index] as number)} samples`,
    tokens: `${number(line.x[index] as number)} tokens`,
    fraction: `${number(100 * (line.x[index] as number))} % of the run`,
    relative: `after ${duration(time - origin)}`,
    wall: moment(new Date(time * 1_000).toISOString()),
  };
  return [
    where[axis],
    measured(curve.value[index] as number, series),
    ...(low === high || Number.isNaN(low) ? [] : [`${measured(low, series)} to ${measured(high, series)} around here`]),
    ...(isNamed ? [`of ${line.name}`] : []),
    ...(line.isRestart ? [attemptName(curve.attempt)] : []),
  ].join(", ");
}

/** Attempt 0 has the points of the job that this one continues. */
export function attemptName(attempt: number): string {
  return attempt === 0 ? "The job before" : `Attempt ${attempt}`;
}

/** "1 restart, 12 checkpoints". */
function counted(marks: readonly Mark[]): string {
  return MARK_KINDS.flatMap((kind) => {
    const count = marks.filter((mark) => mark.kind === kind).length;
    return count === 0 ? [] : [`${number(count)} ${HAPPENED[kind][count === 1 ? 0 : 1]}`];
  }).join(", ");
}

/** "train/loss" of "my job" as `my-job-train-loss`. */
export function fileName(...parts: string[]): string {
  return parts.map((part) => part.replace(/[^\p{L}\p{N}._-]+/gu, "-")).join("-");
}
