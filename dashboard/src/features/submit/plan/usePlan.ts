/** What the service would do with the text, asked again shortly after each change: a newer text aborts the older question. */
import { useDebouncedValue } from "@mantine/hooks";
import { useEffect, useState } from "react";
import { Refusal } from "@/api/client";
import { type FieldProblem, type JobSpec, type PlanView, planJob } from "@/api/generated";
import { usePolled } from "@/api/polling";
import type { SpecText } from "../text/read";

const WAIT_MS = 400;

export interface Planned {
  /** The newest plan, also while that of a newer text is awaited. */
  view: PlanView | null;
  /** Whether `view` is of another text than the one shown. */
  isOld: boolean;
  /** The document with every default, of the last text that had a plan. */
  full: unknown;
  problems: FieldProblem[];
  /** A refusal that is about no field, or that the service was not reached. */
  error: Error | null;
}

const NONE: FieldProblem[] = [];

export function usePlan(spec: SpecText): Planned {
  const [body] = useDebouncedValue(spec.unreadable === null ? spec.json : null, WAIT_MS);
  const { data, error, isPlaceholderData } = usePolled<PlanView>({
    key: ["plan", body],
    fetch: (signal) => planJob({ ...jsonBody<JobSpec>(body ?? "null"), signal, throwOnError: true }),
    seconds: 10,
    enabled: body !== null,
    keepPrevious: true,
  });
  const [full, setFull] = useState<unknown>(null);
  useEffect(() => {
    if (data !== undefined) setFull(data.spec);
  }, [data]);
  const isOld = isPlaceholderData || body !== spec.json;
  const problems = error instanceof Refusal ? (error.problem.errors ?? NONE) : NONE;
  const isKnown = error === null && spec.unreadable === null;
  return { view: isKnown ? (data ?? null) : null, isOld, full, problems, error };
}

/** A body that travels as it was written: JavaScript's own numbers would round large ones. */
export function jsonBody<T>(json: string): { body: T; bodySerializer: () => string } {
  return { body: JSON.parse(json) as T, bodySerializer: () => json };
}
