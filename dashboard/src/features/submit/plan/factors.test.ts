import { describe, expect, it } from "vitest";
import type { PlanView } from "@/api/generated";
import { batchOf } from "./factors";

function view(size: number, ranks: number, micro: number | null, sentence = ""): PlanView {
  const steps = micro === null ? null : Math.max(1, Math.ceil(Math.ceil(size / ranks) / micro));
  return {
    plan: { batch_size: size, world_size: ranks, copies: ranks, micro_batch_size: micro, accumulation_steps: steps },
    sentence,
    spec: {},
    placement: [],
    queue: null,
  };
}

describe("the batch in factors", () => {
  it("is the product of devices, micro-batch and accumulation", () => {
    const batch = batchOf(view(64, 2, 8), 2);
    expect([batch?.size.text, ...(batch?.factors ?? []).map(({ text }) => text)]).toEqual(["64", "2 GPUs", "8", "4"]);
    expect(batch?.words).toBeNull();
  });

  it("never shows a product that is not the batch", () => {
    for (let size = 1; size <= 40; size += 1) {
      for (let ranks = 1; ranks <= Math.min(size, 6); ranks += 1) {
        for (let micro = 1; micro <= Math.ceil(size / ranks); micro += 1) {
          const batch = batchOf(view(size, ranks, micro, `${size} over ${ranks} ranks: shards`), ranks);
          const product = (batch?.factors ?? []).reduce((all, { text }) => all * Number.parseInt(text, 10), 1);
          if (batch?.factors.length) expect(product).toBe(size);
          else expect(batch?.words).toBe(`over ${ranks} ranks: shards`);
        }
      }
    }
  });

  it("says that the micro-batch is not chosen yet, and says ranks where one process drives all devices", () => {
    expect(batchOf(view(64, 2, null), 2)?.words).toBe("over 2 GPUs; the first attempt settles the micro-batch");
    expect(batchOf(view(64, 1, 8), 2)?.factors[0]?.text).toBe("1 rank");
  });

  it("is nothing for a script, which owns its loop", () => {
    expect(batchOf({ ...view(1, 1, 1), plan: null }, 1)).toBeNull();
  });
});
