/** From what a new spec starts, as the address says: nothing, or a job to clone, from its beginning or a checkpoint. */
import { asText } from "@/lib/listed";

export interface SubmitStart {
  clone?: string;
  /** A step of the cloned job's checkpoints, `best`, or `newest`. */
  from?: string;
}

export function readSubmitStart(search: Record<string, unknown>): SubmitStart {
  // The address reads what looks like a number as one.
  const clone = word(search.clone);
  const from = word(search.from);
  if (clone === null) return {};
  return from === null ? { clone } : { clone, from };
}

function word(value: unknown): string | null {
  return asText(value) || null;
}
