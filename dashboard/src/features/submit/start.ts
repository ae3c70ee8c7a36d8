/** From what a new spec starts, as the address says: a template, or a job to clone, from its beginning or a checkpoint. */
import { asText } from "@/lib/listed";
import { TEMPLATE_NAMES, type TemplateName } from "@/lib/template-names";

export interface SubmitStart {
  clone?: string;
  /** A step of the cloned job's checkpoints, `best`, or `newest`. */
  from?: string;
  template?: TemplateName;
}

export function readSubmitStart(search: Record<string, unknown>): SubmitStart {
  // The address reads what looks like a number as one.
  const clone = word(search.clone);
  const from = word(search.from);
  const template = TEMPLATE_NAMES.find((name) => name === search.template);
  if (clone === null) return template === undefined ? {} : { template };
  return from === null ? { clone } : { clone, from };
}

function word(value: unknown): string | null {
  return asText(value) || null;
}
