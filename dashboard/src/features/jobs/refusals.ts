/** Parts of a request for a list that the service cannot use, as its refusal names them. */
import { Failure } from "@/api/client";

export interface RefusedPart {
  /** Parameter of the request: `filter`, `sort`, `columns`, `group`. */
  parameter: string;
  /** The token, or the name of the column. */
  value: string;
  /** What is wrong, and what to write in its place. */
  words: string;
}

/** None for another failure. */
export function refusedParts(error: unknown): RefusedPart[] {
  if (!(error instanceof Failure) || error.kind !== "refused") return [];
  return (error.problem.errors ?? []).flatMap(({ pointer, value, message, next_step }) => {
    const [, parameter] = /^\/query\/(\w+)/.exec(pointer) ?? [];
    return parameter === undefined
      ? []
      : [{ parameter, value: String(value ?? ""), words: [message, next_step].filter(Boolean).join(". ") }];
  });
}
