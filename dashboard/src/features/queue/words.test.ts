import { expect, it } from "vitest";
import { aJob } from "@/testing/jobs";
import { queueSentence, waitingSince } from "./words";

it.each([
  [0, false, "Nothing waits."],
  [1, false, "1 job waits."],
  [500, false, "500 jobs wait."],
  [500, true, "The first 500 jobs that wait."],
])("says of %d jobs, with more: %s: %s", (count, hasMore, words) => {
  expect(queueSentence(count, hasMore)).toBe(words);
});

it("waits since the submit, or since the attempt that failed", () => {
  const job = aJob({ created_at: "2026-11-22T12:00:00Z" });
  const attempt = { number: 1, state: "ended" as const, nodes: [], world_size: 1, outcome: null, created_at: "" };
  expect(waitingSince(job)).toBe("2026-11-22T12:00:00Z");
  const ended_at = "2026-11-22T13:00:00Z";
  expect(waitingSince({ ...job, attempt: { ...attempt, running_at: null, ended_at } })).toBe(ended_at);
});
