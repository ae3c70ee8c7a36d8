/** Limits of a project in words. */
import type { ProjectLimits } from "@/api/generated";
import { duration } from "@/lib/format";

export function limitWords(limits: ProjectLimits): string {
  const said = [
    limits.gpus_per_job_max == null ? "" : `at most ${limits.gpus_per_job_max} devices per job`,
    limits.queued_max == null ? "" : `at most ${limits.queued_max} waiting jobs`,
    limits.priority_max == null ? "" : `priority up to ${limits.priority_max}`,
    limits.timeout_max_seconds == null ? "" : `jobs of at most ${duration(limits.timeout_max_seconds)}`,
    limits.timeout_default_seconds == null ? "" : `${duration(limits.timeout_default_seconds)} if a job gives no time`,
  ];
  return said.filter((words) => words !== "").join(", ");
}
