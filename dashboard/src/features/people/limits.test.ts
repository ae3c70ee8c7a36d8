import { expect, it } from "vitest";
import { limitWords } from "./limits";

it("names each limit that a project has", () => {
  expect(limitWords({})).toBe("");
  expect(limitWords({ gpus_per_job_max: null, queued_max: 5, priority_max: 0 })).toBe(
    "at most 5 waiting jobs, priority up to 0",
  );
  expect(limitWords({ timeout_max_seconds: 7200, timeout_default_seconds: 60 })).toMatch(
    /^jobs of at most 2 h.*, 1 min.* if a job gives no time$/,
  );
});
