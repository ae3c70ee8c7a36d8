/** Limits of a project in words. */
import type { ProjectLimits, ProjectLimitsView } from "@/api/generated";
import { number, span } from "@/lib/format";
import { counted } from "@/lib/resources";

export type LimitName = keyof ProjectLimitsView;

/** Limits that are numbers, with their labels. */
export const NUMBERS: ReadonlyMap<LimitName, string> = new Map([
  ["gpus_max", "Devices at one time"],
  ["gpus_per_user_max", "Devices of one person"],
  ["gpus_per_job_max", "Devices of one job"],
  ["queued_max", "Waiting jobs"],
  ["queued_per_user_max", "Waiting jobs of one person"],
  ["priority_max", "Highest priority"],
  ["timeout_default_seconds", "Seconds of a job that gives no time"],
  ["timeout_max_seconds", "Most seconds of a job"],
  ["budget_gpu_hours", "Device-hours of 30 days"],
]);

/** The text of a limit in a form; empty for none. */
export function startText(limit: number | string | null | undefined): string {
  return limit == null ? "" : String(limit);
}

/** The number in a field. A text that is none is left for the service to refuse. */
export function numberIn(text: string): number {
  return Number.isNaN(Number(text)) ? (text as unknown as number) : Number(text);
}

/** The changed limits of a form, as the service takes them: null removes one. */
export function limitChanges(given: Partial<Record<LimitName, string>>): ProjectLimits {
  const changed = Object.entries(given).map(([name, text]) => {
    if (text.trim() === "") return [name, null];
    return [name, name === "budget_action" ? text : numberIn(text)];
  });
  return Object.fromEntries(changed);
}

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
