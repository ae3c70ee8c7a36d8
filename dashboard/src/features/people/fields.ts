/** Refused fields of a form. */
import { Failure } from "@/api/client";

/** The message about the field at `pointer`; null if the refusal does not name it. */
export function refusedField(error: unknown, pointer: string): string | null {
  const fields = error instanceof Failure ? error.problem.errors : undefined;
  return fields?.find((field) => field.pointer === pointer)?.message ?? null;
}
