import { expect, it } from "vitest";
import type { AttemptView, JobView, QueuePlace } from "@/api/generated";
import { aJob, PROGRESS } from "@/testing/jobs";
import { factsOf } from "./job-facts";

const NOW = Date.parse("2026-11-22T12:31:00Z");

function said(part: Partial<JobView>, silentSince: number | null = null): Record<string, string> {
  const facts = factsOf(aJob(part), { now: NOW, silentSince });
  return Object.fromEntries(
    facts.map(({ name, before, value, after }) => [name, [before, value, after].filter(Boolean).join(" ")]),
  );
}

it("says of a running job how far, how long, how good and how fast it is", () => {
  const latest = { "train/loss": 2.03125, "throughput/tokens_per_second": 871_234 };
  expect(said({ progress: { ...PROGRESS, latest, main: "train/loss" } })).toEqual({
    done: "50 %",
    step: "step 5 of 10",
    left: "1 min 30 s left",
    main: "2.0313 train/loss",
    speed: "871,000 tokens/s",
  });
  expect(said({ progress: { ...PROGRESS, eta_seconds: 1_325 } }).left).toBe("22 min left");
});

it("has the time since the start of a job where the time left is not known, and stops it without answers", () => {
  expect(said({ progress: { ...PROGRESS, eta_seconds: null } }).elapsed).toBe("30 min 00 s elapsed");
  const silent = said({ progress: PROGRESS }, NOW);
  expect(silent.elapsed).toBe("30 min 00 s elapsed, stopped");
  expect(silent).not.toHaveProperty("left");
});

it("says a loss that is no number, and nothing of a series that has no value", () => {
  expect(said({ progress: { ...PROGRESS, latest: { loss: "NaN" }, main: "loss" } }).main).toBe("NaN loss");
  expect(said({ progress: { ...PROGRESS, latest: {}, main: "loss" } })).not.toHaveProperty("main");
});

it("says of an ended job how long it took, and neither what is left nor how fast", () => {
  const latest = { "throughput/samples_per_second": 9 };
  const ended = { state: "succeeded", finished_at: "2026-11-22T12:02:00Z" } as const;
  expect(said({ ...ended, progress: { ...PROGRESS, latest } })).toEqual({
    step: "step 5 of 10",
    duration: "duration 1 min 00 s",
  });
});

it("says of a waiting job its place and its start", () => {
  const queue = { position: 3, estimated_start: "2026-11-22T12:41:00Z" } as QueuePlace;
  const facts = said({ state: "queued", started_at: null, queue });
  expect(facts).toMatchObject({
    place: "#3 in the queue",
    start: expect.stringMatching(/^starts about .* in 10 min$/),
  });
});

it("has the batch as an equation, as far as the batch divides; a script has its ranks", () => {
  const plan = { batch_size: 64, micro_batch_size: 8, accumulation_steps: 4, world_size: 2, copies: 2 };
  expect(said({ plan } as Partial<JobView>).batch).toBe("batch 64 = 2 ranks × 8 × 4");
  const uneven = { ...plan, batch_size: 65, accumulation_steps: 5 };
  const sentence = "65 over 2 ranks: shards of 32 or 33, each in 5 of 6 to 7 samples";
  const job = aJob({ plan: uneven, plan_sentence: sentence } as Partial<JobView>);
  expect(factsOf(job, { now: NOW, silentSince: null }).at(-1)).toMatchObject({
    after: "over 2 ranks × 6–7 × 5",
    title: sentence,
  });
  expect(said({ kind: "script", attempt: { world_size: 2 } as AttemptView }).ranks).toBe("2 ranks");
});
