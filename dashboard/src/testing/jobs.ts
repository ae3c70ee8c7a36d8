/** A job as the service answers it, for tests: what a test does not care about is filled in. */
import type { JobView } from "@/api/generated";

export function aJob(part: Partial<JobView> = {}): JobView {
  return {
    id: "01a201d6-041d-7787-80c4-00a52f02a2d6",
    name: "gpt",
    project: "default",
    kind: "train",
    state: "running",
    reason: null,
    spec: {},
    plan: null,
    plan_sentence: null,
    progress: null,
    attempt: null,
    queue: null,
    intent: null,
    outcome: null,
    priority: 50,
    labels: {},
    created_at: "2026-11-22T12:00:00Z",
    started_at: "2026-11-22T12:01:00Z",
    finished_at: null,
    version: 1,
    ...part,
  };
}
