/**
 * Where the time of a step goes: the mean of each part over the newest steps, and what to say about it.
 *
 * A part that a step does not have (an evaluation, a checkpoint) took no time in it, so that a rare and long part counts as
 * what it costs per step.
 */
import type { SeriesView } from "@/api/generated";

/** Steps that are looked at: enough to level out single ones, few enough to tell of now. */
export const NEWEST_STEPS = 100;

const WHOLE = "time/step_seconds";

export const PARTS = [
  { part: "data", name: "Waiting for data" },
  { part: "forward", name: "Forward" },
  { part: "backward", name: "Backward" },
  { part: "tensor", name: "Messages of the tensor group" },
  { part: "communication", name: "Waiting for other ranks" },
  { part: "optimizer", name: "Optimizer" },
  { part: "checkpoint", name: "Checkpoint" },
  { part: "eval", name: "Evaluation" },
  { part: "other", name: "Other" },
] as const;
export type Part = (typeof PARTS)[number]["part"];

export const SERIES = [WHOLE, ...PARTS.map(({ part }) => `time/${part}_seconds`)];

export interface TimeShare {
  part: Part;
  name: string;
  /** Mean of a step. */
  seconds: number;
  /** 0 to 1. */
  share: number;
}

export interface TimeShares {
  steps: number;
  shares: TimeShare[];
}

/** Parts in the order of a step; null where no step was timed. */
export function timeShares(series: SeriesView[]): TimeShares | null {
  const steps = values(series, WHOLE).length;
  if (steps === 0) return null;
  const sums = PARTS.map(({ part, name }) => ({ part, name, sum: total(values(series, `time/${part}_seconds`)) }));
  const all = total(sums.map(({ sum }) => sum));
  if (all <= 0) return null;
  return {
    steps,
    shares: sums
      .filter(({ sum }) => sum > 0)
      .map(({ part, name, sum }) => ({ part, name, seconds: sum / steps, share: sum / all })),
  };
}

/** Worth a remark from this share on: below it, something else is worth looking at first. */
const REMARKABLE = 0.15;

const REMARKS: Partial<Record<Part, (percent: string) => string>> = {
  data: (percent) => `The step waits for data ${percent} of the time.`,
  communication: (percent) => `The step waits for the other ranks ${percent} of the time.`,
  tensor: (percent) => `Messages of the tensor group take ${percent} of the time.`,
  checkpoint: (percent) => `The step waits for checkpoints ${percent} of the time.`,
  eval: (percent) => `Evaluation takes ${percent} of the time.`,
  optimizer: (percent) => `The optimizer takes ${percent} of the time.`,
};

/** The largest part that is not the model's own arithmetic, if it is large; otherwise that it is not. */
export function remark({ shares }: TimeShares): string {
  const [largest] = shares.filter(({ part }) => part in REMARKS).sort((a, b) => b.share - a.share);
  if (largest !== undefined && largest.share >= REMARKABLE) {
    return REMARKS[largest.part]?.(percent(largest.share)) ?? "";
  }
  const model = total(shares.filter(({ part }) => part === "forward" || part === "backward").map(({ share }) => share));
  return `The model computes ${percent(model)} of the time.`;
}

/** "41 %", "0.4 %", "<0.1 %". */
export function percent(share: number): string {
  const hundredths = share * 100;
  if (hundredths >= 9.95) return `${Math.round(hundredths)} %`;
  if (hundredths > 0 && hundredths < 0.05) return "<0.1 %";
  return `${Number(hundredths.toFixed(1))} %`;
}

/** Of every attempt; what is no number says nothing about time. */
function values(series: SeriesView[], name: string): number[] {
  return series
    .filter((each) => each.name === name)
    .flatMap((each) => each.value.filter((value): value is number => typeof value === "number"));
}

function total(numbers: number[]): number {
  return numbers.reduce((sum, each) => sum + each, 0);
}
