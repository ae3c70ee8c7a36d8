import { expect, it } from "vitest";
import { planFactors } from "./plan-factors";

/** Sizes of all slots, dealt out as the service does: the batch over ranks, each share over its slots. */
function slots(batch: number, ranks: number, micro: number): { sizes: number[]; steps: number } {
  const deal = (size: number, parts: number) =>
    Array.from({ length: parts }, (_, index) => Math.floor(size / parts) + (index < size % parts ? 1 : 0));
  const steps = Math.max(1, Math.ceil(Math.ceil(batch / ranks) / micro));
  return { sizes: deal(batch, ranks).flatMap((share) => deal(share, steps)), steps };
}

it("multiplies to the batch exactly where all slots are equal, and names all their sizes where not", () => {
  for (let batch = 1; batch <= 40; batch += 1) {
    for (let ranks = 1; ranks <= 6; ranks += 1) {
      for (let micro = 1; micro <= 9; micro += 1) {
        const { sizes, steps } = slots(batch, ranks, micro);
        const found = planFactors({
          batch_size: batch,
          world_size: ranks,
          copies: ranks,
          micro_batch_size: micro,
          accumulation_steps: steps,
        });
        const [smallest, largest] = [Math.min(...sizes), Math.max(...sizes)];
        expect(found.exact).toBe(smallest === largest);
        expect(found.factors[1]?.value).toBe(smallest === largest ? String(smallest) : `${smallest}–${largest}`);
        if (found.exact) {
          expect(found.factors.reduce((product, { value }) => product * Number(value), 1)).toBe(batch);
        }
      }
    }
  }
});

it("says that the micro-batch is not chosen yet", () => {
  const plan = { batch_size: 64, world_size: 1, copies: 1, micro_batch_size: null, accumulation_steps: null };
  expect(planFactors(plan)).toMatchObject({ exact: false, factors: [{ value: "1", name: "rank" }, { value: "auto" }] });
});

it("counts copies of a model that is cut over several ranks", () => {
  const plan = { batch_size: 64, world_size: 4, copies: 2, micro_batch_size: 8, accumulation_steps: 4 };
  expect(planFactors(plan)).toMatchObject({
    exact: true,
    factors: [{ value: "2", name: "copies" }, { value: "8" }, {}],
  });
});
