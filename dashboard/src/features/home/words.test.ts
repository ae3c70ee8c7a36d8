import { describe, expect, it } from "vitest";
import { aJob } from "@/testing/jobs";
import { jobsSentence, type Notice, noticeWords, partsOf, whenOf } from "./words";

const NOW = Date.parse("2026-11-22T14:00:00Z");

it.each([
  [aJob({ finished_at: "2026-11-22T13:00:00Z", state: "failed" }), "1 h ago", "2026-11-22T13:00:00Z"],
  [aJob({ state: "starting" }), "", null],
  [aJob({ state: "queued" }), "not processed yet", null],
  [
    aJob({ state: "queued", queue: { position: 1, reason: "", estimated_start: "2026-11-22T13:59:00Z" } }),
    "any moment now",
    "2026-11-22T13:59:00Z",
  ],
  [
    aJob({ progress: { step: 1, steps: 2, samples: null, fraction: 0.5, eta_seconds: 90 } }),
    "1 min 30 s left",
    "2026-11-22T14:01:30.000Z",
  ],
])("says when a job ends, starts or has ended", (job, words, at) => {
  expect(whenOf(job, NOW)).toEqual({ words, at });
});

it("counts jobs without zeros", () => {
  const jobs = { first: [], waiting: [] };
  expect(jobsSentence({ ...jobs, running: 6, queued: 1, failed: 2 })).toBe("6 running, 1 waits, 2 failed in 24 h");
  expect(jobsSentence({ ...jobs, running: 0, queued: 0, failed: 0 })).toBe("");
});

it("divides the bar among all devices, without empty parts", () => {
  const parts = partsOf({ total: 8, in_use: 5, idle: 1, free: 2, closed: 0 });
  expect(parts.map(({ name, percent }) => [name, percent])).toEqual([
    ["in use", 62.5],
    ["held but idle", 12.5],
    ["free", 25],
  ]);
  expect(partsOf({ total: 0, in_use: 0, idle: 0, free: 0, closed: 0 })).toEqual([]);
});

describe("what needs attention", () => {
  const node = { kind: "node", name: "n1", reason: null, since: null, drained_by: null, seen_at: null } as const;
  it.each<[Notice, string]>([
    [
      { ...node, state: "draining", reason: "new fan", since: "2026-11-22T13:48:00Z", drained_by: "ada" },
      "n1 is draining|new fan|by ada 12 min ago",
    ],
    [
      { ...node, state: "quarantined", reason: "it failed", since: "2026-11-22T13:00:00Z" },
      "n1 is quarantined|it failed|1 h ago",
    ],
    [{ ...node, state: "lost", seen_at: "2026-11-22T13:57:00Z" }, "n1 is lost||last seen 3 min ago"],
    [{ ...node, state: "leaving" }, "n1 is leaving||"],
    [
      { kind: "job", id: "1", name: "gpt", project: "nlp", message: "shape", finished_at: "2026-11-22T12:00:00Z" },
      "gpt failed|shape|2 h ago",
    ],
    [
      { kind: "budget", project: "nlp", used_gpu_hours: 1840.5, budget_gpu_hours: 2000 },
      "nlp has used 92 % of its device-hours|1,840.5 of 2,000 in 30 days|",
    ],
  ])("%j is %s", (notice, words) => {
    const { what, is, detail, when } = noticeWords(notice, NOW);
    expect(`${what} ${is}|${detail}|${when?.words ?? ""}`).toBe(words);
  });
});
