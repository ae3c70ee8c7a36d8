/** The number of ranks whose lines a job's log may have. */
import type { JobView } from "@/api/generated";

export function ranksOf({ attempt, plan }: JobView): number {
  return Math.max(attempt?.world_size ?? 1, plan?.world_size ?? 1);
}
