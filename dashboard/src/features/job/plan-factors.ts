/**
 * The promise in figures: the batch, and the factors that make it.
 *
 * Equal slots multiply to the batch exactly. Where the batch does not divide, shares and slots differ by one sample, no product
 * says that, and the plan's own sentence has to.
 */
import type { BatchPlan } from "@/api/generated";

export interface Factor {
  value: string;
  name: string;
}

export interface PlanFactors {
  batch: number;
  /** Whether the factors multiply to the batch. */
  exact: boolean;
  factors: Factor[];
}

export function planFactors(plan: BatchPlan): PlanFactors {
  const { batch_size: batch, world_size: ranks, copies, micro_batch_size: micro, accumulation_steps: steps } = plan;
  const unit = copies === ranks ? ["rank", "ranks"] : ["copy", "copies"];
  const world = { value: String(copies), name: unit[copies === 1 ? 0 : 1] ?? "" };
  if (micro === null || steps === null) {
    return {
      batch,
      exact: false,
      factors: [world, { value: "auto", name: "micro-batch, chosen by the first attempt" }],
    };
  }
  const slots = copies * steps;
  const exact = batch % slots === 0;
  const smallest = Math.floor(batch / slots);
  const sizes = exact ? String(batch / slots) : `${smallest}–${smallest + 1}`;
  return {
    batch,
    exact,
    factors: [world, { value: sizes, name: "micro-batch" }, { value: String(steps), name: "accumulation" }],
  };
}
