/** The batch as a product, each factor with what it means; in the service's own words where it is no product. */
import type { PlanView } from "@/api/generated";

export interface Factor {
  /** What the sentence shows: `2 GPUs`. */
  text: string;
  means: string;
}

export interface Batch {
  size: Factor;
  /** Their product is the size; empty where shares differ or the micro-batch is not settled. */
  factors: Factor[];
  /** Said in place of the factors. */
  words: string | null;
}

/** `devices`: what the spec asks for; an elastic job starts at its largest. */
export function batchOf(view: PlanView, devices: number | null): Batch | null {
  const { plan, sentence } = view;
  if (plan === null) return null;
  const { batch_size: size, world_size: ranks, micro_batch_size: micro, accumulation_steps: steps } = plan;
  const whole: Factor = {
    text: String(size),
    means: `${count(size, "sample")} in one optimizer step, over all ranks: the promise. It will not change while the job lives, on however many devices it runs.`,
  };
  const device: Factor = {
    text: count(ranks, ranks === devices ? "GPU" : "rank"),
    means:
      ranks === 1
        ? "One rank makes the whole step."
        : `${ranks} ranks share the step, one for each device. A node without GPUs gives CPU slots instead.`,
  };
  if (micro == null || steps == null) {
    return { size: whole, factors: [], words: `over ${device.text}; the first attempt settles the micro-batch` };
  }
  if (ranks * micro * steps !== size) {
    const [, words] = /^\S+ (.*)$/.exec(sentence ?? "") ?? [];
    return { size: whole, factors: [], words: words ?? `over ${device.text}` };
  }
  return {
    size: whole,
    words: null,
    factors: [
      device,
      {
        text: String(micro),
        means: `${count(micro, "sample")} in one forward and backward on one device: the micro-batch.`,
      },
      {
        text: String(steps),
        means:
          steps === 1
            ? "Each rank takes its share in one go."
            : `${steps} micro-batches that each rank runs, one after another, before one optimizer step: accumulation.`,
      },
    ],
  };
}

function count(number: number, noun: string): string {
  return `${number.toLocaleString("en-US")} ${noun}${number === 1 ? "" : "s"}`;
}
