import { describe, expect, it } from "vitest";
import type { MemoryForecast, PlannedMemory, PlanView } from "@/api/generated";
import { memoryOf } from "./memory";

const MIB = 1_024 ** 2;
const KNOWN: PlannedMemory = {
  state: "known",
  source: "task",
  forecast: {
    weights: 2 * MIB,
    buffers: 10,
    gradients: 2 * MIB,
    optimizer: 4 * MIB,
    activations: 9 * MIB,
    temporary: MIB,
    buckets: 0,
    peak: 18 * MIB + 10,
  },
  micro_batch_size: 8,
  micro_batch_size_max: 32,
  device_type: "cpu",
  capacity_bytes: 4 * 1_024 * MIB,
};

const words = (memory: PlannedMemory | null) =>
  memoryOf({ plan: null, sentence: null, spec: {}, placement: [], queue: null, memory } as PlanView);

describe("the memory of a plan", () => {
  it("is what a rank needs, its parts, what the device allows, and the source", () => {
    expect(words(KNOWN)).toEqual({
      rank: "about 18.0 MiB on each device with micro-batches of 8",
      parts: "activations 9.00 MiB · optimizer 4.00 MiB · weights 2.00 MiB · gradients 2.00 MiB · temporary 1.00 MiB",
      device: "4.00 GiB on each cpu: micro-batches of up to 32 fit",
      isShort: false,
      source: "computed from the task",
    });
  });

  it("names the stage that needs most, and all stages", () => {
    const stages = [
      { blocks: 2, peak: 9 * MIB },
      { blocks: 1, peak: KNOWN.forecast?.peak ?? 0 },
    ];
    const forecast = { ...KNOWN.forecast, stages } as MemoryForecast;
    expect(words({ ...KNOWN, forecast })?.rank).toBe(
      "about 18.0 MiB on each device of stage 1 (by stage 9.00 MiB, 18.0 MiB) with micro-batches of 8",
    );
  });

  it("marks a device that has too little", () => {
    const short = words({ ...KNOWN, micro_batch_size_max: 4 });
    expect([short?.device, short?.isShort]).toEqual(["4.00 GiB on each cpu: only micro-batches of up to 4 fit", true]);
    const none = words({ ...KNOWN, micro_batch_size_max: 0 });
    expect([none?.device, none?.isShort]).toEqual([
      "4.00 GiB on each cpu: no micro-batch fits, not even one sample",
      true,
    ]);
  });

  it("names the earlier job, and what it took", () => {
    const history = { ...KNOWN, source: "history", job: "0192-aaaabbbb", micro_batch_size_max: null } as const;
    expect(words(history)?.source).toBe("as forecast for job aaaabbbb");
    expect(words(history)?.device).toBe("4.00 GiB on each cpu");
    expect(words({ ...history, measured_bytes: 17 * MIB })?.source).toContain("which took 17.0 MiB");
  });

  it("says that it is being computed, and why there is none", () => {
    expect(words({ state: "computing" })?.rank).toBe("being computed …");
    expect(words({ state: "unknown", why: "no torch here" })?.rank).toBe("no forecast: no torch here");
    expect(words(null)).toBeNull();
  });
});
