/** A job and a share as the service answers them, for tests: what a test does not care about is filled in. */
import type { AttemptView, EventView, JobView, ShareView } from "@/api/generated";

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

export function aShare(part: Partial<ShareView> = {}): ShareView {
  return {
    project: "default",
    weight: 1,
    entitled: 4,
    in_use: 2,
    average: 1.5,
    queued: 3,
    gpus_max: null,
    budget_gpu_hours: null,
    used_gpu_hours: null,
    people: [],
    ...part,
  };
}

/** Of a job that is half done. */
export const PROGRESS = { step: 5, steps: 10, samples: null, fraction: 0.5, eta_seconds: 90 };

export function event(id: number, kind: string, attempt: number | null = null): EventView {
  return { id, at: "2026-01-01T00:00:00Z", kind, attempt, actor: "lockstep", message: `${kind} ${id}`, data: {} };
}

export function anAttempt(number: number, part: Partial<AttemptView>): AttemptView {
  const times = {
    created_at: `2026-01-01T00:0${number}:00Z`,
    running_at: null,
    ended_at: `2026-01-01T00:0${number}:30Z`,
  };
  return {
    number,
    state: "ended",
    nodes: ["atlas"],
    world_size: 2,
    plan_sentence: null,
    outcome: null,
    ...times,
    ...part,
  };
}
