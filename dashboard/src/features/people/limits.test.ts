import { expect, it } from "vitest";
import { limitChanges, limitWords } from "./limits";

it("names each limit that a project has", () => {
  expect(limitWords({})).toBe("");
  expect(limitWords({ gpus_per_job_max: null, queued_max: 5, priority_max: 0 })).toBe(
    "at most 5 waiting jobs, priority up to 0",
  );
  expect(limitWords({ timeout_max_seconds: 7200, timeout_default_seconds: 60 })).toBe(
    "jobs of at most 2 h, 1 min if a job gives no time",
  );
  expect(limitWords({ gpus_max: 32, gpus_per_user_max: 1, gpus_per_job_max: 8, queued_per_user_max: 3 })).toBe(
    "at most 32 devices, at most 1 device per person, at most 8 devices per job, at most 3 waiting jobs per person",
  );
  expect(limitWords({ budget_gpu_hours: 20_000 })).toBe("20,000 device-hours of 30 days, then a warning");
  expect(limitWords({ budget_gpu_hours: 20_000, budget_action: "hold" })).toMatch(/, then no job starts$/);
  expect(limitWords({ budget_gpu_hours: 20_000, budget_action: "pause" })).toMatch(/, then no job starts \(pause\)$/);
});

it("sends changed limits as numbers, and null for an empty field", () => {
  const given = { gpus_max: "8", queued_max: " ", priority_max: "high", budget_action: "hold" };
  const sent = { gpus_max: 8, queued_max: null, priority_max: "high", budget_action: "hold" };
  expect(limitChanges(given)).toEqual(sent);
});
