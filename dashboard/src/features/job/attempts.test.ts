import { describe, expect, it } from "vitest";
import type { AttemptView, Outcome } from "@/api/generated";
import { changedFactors, endingOf, firstLine, planParts, promiseOver, spans, whereItFailed } from "./attempts";

function anAttempt(number: number, part: Partial<AttemptView> = {}): AttemptView {
  return {
    number,
    state: "ended",
    nodes: ["atlas"],
    world_size: 2,
    plan_sentence: null,
    outcome: null,
    created_at: "2026-11-22T12:00:00Z",
    running_at: null,
    ended_at: null,
    ...part,
  };
}

describe("a plan's sentence", () => {
  it("is its batch and the factors that make it, for every product", () => {
    for (const ranks of [1, 2, 16]) {
      for (const samples of [1, 8]) {
        for (const steps of [1, 4]) {
          const counted = (count: number, noun: string) => `${count} ${noun}${count === 1 ? "" : "s"}`;
          const factors = [counted(ranks, "rank"), counted(samples, "sample"), counted(steps, "accumulation step")];
          const batch = ranks * samples * steps;
          const parts = planParts(`${batch} = ${factors.join(" × ")}`);
          expect(parts).toEqual({ batch, factors, rest: `= ${factors.join(" × ")}` });
          expect(parts.factors.reduce((product, factor) => product * Number.parseInt(factor, 10), 1)).toBe(batch);
        }
      }
    }
  });

  it.each([
    ["65 over 2 ranks: shards of 32 or 33, each in 5 accumulation steps of 6 to 7 samples", 65],
    ["64 over 2 ranks; the first attempt chooses the micro-batch", 64],
  ])("has no factors where it is no product: %s", (sentence, batch) => {
    const parts = planParts(sentence);
    expect(parts).toMatchObject({ batch, factors: [] });
    expect(`${parts.batch} ${parts.rest}`).toBe(sentence);
  });

  it("is left as it is where it begins otherwise", () => {
    expect(planParts("as it comes")).toEqual({ batch: null, factors: [], rest: "as it comes" });
  });
});

describe("the promise over attempts", () => {
  const made = (...sentences: (string | null)[]) =>
    promiseOver(sentences.map((plan_sentence, place) => anAttempt(sentences.length - place, { plan_sentence })));

  it("is kept where the product is the same, whatever its factors", () => {
    expect(made("64 = 1 rank × 16 samples × 4 accumulation steps", "64 over 3 ranks: shards of 21 or 22")).toEqual({
      isKept: true,
      words: "The batch was 64 samples a step in both attempts.",
    });
    expect(made("64 = a", "64 = b", null, "64 = c")?.words).toContain("in all 3 attempts");
  });

  it("is never said to be kept where one differs", () => {
    expect(made("32 = a", "64 = b", "64 = c")).toEqual({
      isKept: false,
      words: "The batch was not the same: 32 in attempt 3; 64 in attempts 1, 2.",
    });
  });

  it("is nothing to speak of for one attempt, or a script", () => {
    expect(made("64 = a")).toBeNull();
    expect(made(null, null)).toBeNull();
    expect(made()).toBeNull();
  });
});

it("marks the factors that are not those of the attempt before", () => {
  const before = ["2 ranks", "8 samples", "4 accumulation steps"];
  expect(changedFactors(["1 rank", "8 samples", "8 accumulation steps"], before)).toEqual([true, false, true]);
  expect(changedFactors(before, [])).toEqual([false, false, false]);
});

describe("how an attempt ended", () => {
  const outcome = (reason: Outcome["reason"], part: Partial<Outcome> = {}): Outcome => ({
    reason,
    message: "",
    ...part,
  });
  it.each([
    [anAttempt(1, { state: "starting" }), "busy", "starting"],
    [anAttempt(1, { state: "running" }), "busy", "running"],
    [anAttempt(1, { outcome: outcome("succeeded") }), "good", "succeeded"],
    [anAttempt(1, { outcome: outcome("out_of_memory") }), "bad", "out of memory"],
    [anAttempt(1, { outcome: outcome("lost") }), "wait", "lost"],
    [anAttempt(1, { outcome: outcome("cancelled") }), "idle", "cancelled"],
    [anAttempt(1), "idle", "ended"],
  ])("%#: %s, %s", (attempt, tone, word) => {
    expect(endingOf(attempt)).toMatchObject({ tone, word });
  });

  it("names who failed as far as that is known", () => {
    const all = outcome("killed", { rank: 0, node: "gpu-a", exit_code: 3, signal: "SIGKILL", last_step: 1_040 });
    expect(whereItFailed(all)).toBe("rank 0 on gpu-a, exit code 3, SIGKILL, after step 1,040");
    expect(whereItFailed(outcome("lost", { node: "gpu-a" }))).toBe("on gpu-a");
    expect(whereItFailed(outcome("shutdown"))).toBe("");
  });

  it("has the first line of an exception that says something", () => {
    expect(firstLine("\n  ValueError: no shard \nmore")).toBe("ValueError: no shard");
    expect([firstLine(null), firstLine(undefined), firstLine("\n")]).toEqual(["", "", ""]);
  });
});

describe("the spans of attempts", () => {
  const at = (minute: number) => new Date(Date.UTC(2026, 10, 22, 12, minute)).toISOString();
  it("lie where they were, up to now", () => {
    const attempts = [anAttempt(2, { created_at: at(30) }), anAttempt(1, { created_at: at(0), ended_at: at(20) })];
    expect(spans(attempts, Date.parse(at(40)))).toEqual([
      { left: 0.75, width: 0.25 },
      { left: 0, width: 0.5 },
    ]);
  });

  it("do not leave the picture where clocks disagree", () => {
    expect(spans([anAttempt(1, { created_at: at(5) })], Date.parse(at(0)))).toEqual([{ left: 0, width: 1 }]);
    expect(spans([], 0)).toEqual([]);
  });
});
