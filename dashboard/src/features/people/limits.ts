/** Limits of a project in words. */
import type { ProjectLimitsView } from "@/api/generated";
import { number, span } from "@/lib/format";
import { counted } from "@/lib/resources";

export function limitWords(limits: ProjectLimitsView): string {
  const said = [
    limits.gpus_max == null ? "" : `at most ${counted(limits.gpus_max, "device")}`,
    limits.gpus_per_user_max == null ? "" : `at most ${counted(limits.gpus_per_user_max, "device")} per person`,
    limits.gpus_per_job_max == null ? "" : `at most ${counted(limits.gpus_per_job_max, "device")} per job`,
    limits.queued_max == null ? "" : `at most ${counted(limits.queued_max, "waiting job")}`,
    limits.queued_per_user_max == null
      ? ""
      : `at most ${counted(limits.queued_per_user_max, "waiting job")} per person`,
    limits.priority_max == null ? "" : `priority up to ${limits.priority_max}`,
    limits.timeout_max_seconds == null ? "" : `jobs of at most ${span(limits.timeout_max_seconds)}`,
    limits.timeout_default_seconds == null ? "" : `${span(limits.timeout_default_seconds)} if a job gives no time`,
    limits.budget_gpu_hours == null
      ? ""
      : `${number(limits.budget_gpu_hours)} device-hours of 30 days, then ${consequence(limits.budget_action)}`,
  ];
  return said.filter((words) => words !== "").join(", ");
}

function consequence(action: string | null | undefined): string {
  if (action == null || action === "warn") return "a warning";
  // Another one is of a newer version.
  return action === "hold" ? "no job starts" : `no job starts (${action})`;
}
