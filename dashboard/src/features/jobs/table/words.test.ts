import { describe, expect, it } from "vitest";
import type { AttemptView, BatchPlan, Outcome, Progress } from "@/api/generated";
import { aJob } from "@/testing/jobs";
import { gpusOf, leftWords, mishap, planInShort, progressWords, ranFor, reached, span, statesInWords } from "./words";

describe("the plan in short", () => {
  const plan = (batch: number, ranks: number, micro: number | null, steps: number | null): BatchPlan => ({
    batch_size: batch,
    world_size: ranks,
    copies: ranks,
    micro_batch_size: micro,
    accumulation_steps: steps,
  });
  it.each([
    [plan(64, 2, 8, 4), "64 = 2 × 8 × 4"],
    [plan(1_024, 1, 16, 64), "1,024 = 1 × 16 × 64"],
    [plan(64, 3, 8, 3), "64 over 3 ranks"],
    [plan(64, 1, null, null), "64 over 1 rank"],
    [plan(64, 2, 40, 1), "64 over 2 ranks"],
    [{ ...plan(64, 4, 8, 4), copies: 2 }, "64 = 2 × 8 × 4"],
    [{ ...plan(65, 4, 8, 5), copies: 2 }, "65 over 2 copies"],
  ])("%j", (numbers, words) => {
    expect(planInShort(numbers)).toBe(words);
  });

  it("claims an equation only where it holds", () => {
    for (let ranks = 1; ranks <= 5; ranks += 1) {
      for (let micro = 1; micro <= 5; micro += 1) {
        for (let steps = 1; steps <= 5; steps += 1) {
          const words = planInShort(plan(24, ranks, micro, steps));
          const [batch, product] = words.split(" = ");
          if (product === undefined) continue;
          expect(product.split(" × ").reduce((sum, factor) => sum * Number(factor), 1)).toBe(Number(batch));
        }
      }
    }
  });
});

describe("progress", () => {
  const of = (progress: Partial<Progress>) =>
    progressWords(
      aJob({ progress: { step: 0, steps: null, samples: null, fraction: null, eta_seconds: null, ...progress } }),
    );

  it("has steps, percent and the time that is left", () => {
    expect(of({ step: 1_500, steps: 6_000, fraction: 0.25, eta_seconds: 200 })).toEqual({
      share: 0.25,
      steps: "1,500 / 6,000 steps",
      percent: "25 %",
    });
  });

  it("is only a step where the end is not known", () => {
    expect(of({ step: 124 })).toEqual({ share: null, steps: "step 124", percent: null });
  });

  it("is not 100 % before the last step", () => {
    expect(of({ step: 1_999, steps: 2_000, fraction: 1_999 / 2_000 })?.percent).toBe("99 %");
    for (let step = 0; step <= 300; step += 1) {
      const percent = of({ step, steps: 300, fraction: step / 300 })?.percent;
      expect(percent).toBe(`${Math.floor((step * 100) / 300)} %`);
    }
  });

  it("is none before the first step", () => {
    expect([progressWords(aJob()), reached(aJob())]).toEqual([null, null]);
  });

  it.each([
    ["succeeded", 20_000, 20_000, "20,000 steps"],
    ["succeeded", 1, null, "1 step"],
    ["cancelled", 310, 20_000, "at step 310 of 20,000"],
    ["failed", 310, null, "310 steps"],
  ] as const)("of a job that has %s is %s of %s: %s", (state, step, steps, words) => {
    const progress = { step, steps, samples: null, fraction: null, eta_seconds: null };
    expect(reached(aJob({ state, progress }))).toBe(words);
  });
});

describe("the time that is left", () => {
  const now = Date.parse("2026-11-22T12:00:00Z");
  const progress = { step: 1, steps: 9, samples: null, fraction: 0.1, eta_seconds: 200 };
  const queue = { position: 1, reason: "waits", code: "limit", estimated_start: null } as const;
  it("is that of a running job, and the start of a waiting one", () => {
    expect(leftWords(aJob({ progress }), now)).toEqual({ text: "3 min 20 s", title: "3 min 20 s left" });
    expect(leftWords(aJob({ state: "queued", queue }), now)).toEqual({
      text: "not known",
      title: "starts once below its device limit",
    });
    const soon = { ...queue, estimated_start: "2026-11-22T11:59:00Z" };
    expect(leftWords(aJob({ state: "queued", queue: soon }), now)).toEqual({
      text: "now",
      title: "starts any moment now",
    });
  });
  it("is none of a job that has ended", () => {
    expect(leftWords(aJob({ state: "succeeded", progress }), now)).toBeNull();
  });
});

it.each([
  [{}, "1"],
  [{ resources: { gpus: 8 } }, "8"],
  [{ resources: { gpus: { min: 2, max: 8 } } }, "2–8"],
])("%j asks for %s GPUs", (spec, words) => {
  expect(gpusOf(aJob({ state: "queued", spec }))).toBe(words);
  const attempt = { ...endedAt("2026-11-22T12:04:58Z"), world_size: 3 };
  expect(gpusOf(aJob({ state: "running", spec, attempt }))).toBe("3");
});

it("says states in words, and leaves out those without jobs", () => {
  expect(statesInWords({ running: 1_200, failed: 0, queued: 2 })).toBe("2 queued, 1,200 running");
});

describe("a mishap", () => {
  const outcome: Outcome = { reason: "out_of_memory", message: "rank 1 asked for 2 GiB" };
  const said = { reason: "out of memory", message: outcome.message };
  it("is that of a failed job, or of the last attempt at one that is tried again", () => {
    const attempt = { ...endedAt("2026-11-22T12:04:58Z"), outcome };
    expect(mishap(aJob({ state: "failed", outcome }))).toEqual(said);
    expect(mishap(aJob({ state: "queued", attempt }))).toEqual(said);
    expect(mishap(aJob({ state: "running", outcome }))).toBeNull();
  });
  it("is none of a job that ended as somebody wanted", () => {
    expect(
      mishap(aJob({ state: "succeeded", outcome: { reason: "succeeded", message: "all ended well" } })),
    ).toBeNull();
    expect(mishap(aJob({ state: "cancelled", outcome: { reason: "cancelled", message: "by ada" } }))).toBeNull();
  });
});

function endedAt(ended_at: string): AttemptView {
  return {
    number: 1,
    state: "ended",
    nodes: [],
    world_size: 1,
    outcome: null,
    created_at: "",
    running_at: null,
    ended_at,
  };
}

describe("how long", () => {
  const now = Date.parse("2026-11-22T12:05:00Z");
  it.each([
    [aJob(), "runs 4 min 00 s"],
    [aJob({ state: "queued", started_at: null }), "waits 5 min 00 s"],
    [aJob({ state: "queued", attempt: endedAt("2026-11-22T12:04:58Z") }), "waits 2 s"],
    [aJob({ state: "starting", started_at: null }), "starting for 5 min 00 s"],
    [aJob({ state: "succeeded", finished_at: "2026-11-22T12:01:30Z" }), "ran 30 s"],
    [aJob({ state: "cancelled", started_at: null, finished_at: "2026-11-22T12:00:30Z" }), "never ran"],
  ])("%#", (job, words) => {
    expect(span(job, now)).toBe(words);
    if (/^r[ua]n/.test(words)) expect(ranFor(job, now)).toBe(words.replace(/^\w+ /, ""));
  });
});
