/** What the service would do with the text, asked again shortly after each change: a newer text aborts the older question. */
import { useDebouncedValue } from "@mantine/hooks";
import { useEffect, useState } from "react";
import { Failure, SILENCE_SECONDS } from "@/api/client";
import { type FieldProblem, type JobSpec, type PlanView, planJob } from "@/api/generated";
import { usePolled } from "@/api/polling";
import type { SpecText } from "../text/read";

const WAIT_MS = 400;
const SECONDS = 10;
/** While the service computes the memory forecast: a few seconds where nothing else waits. */
const COMPUTING_SECONDS = 2;

/** A document, and the same with every default that the service takes where nothing is written. */
export interface Filled {
  written: unknown;
  full: unknown;
}

export interface Planned {
  /** The newest plan, also while that of a newer text is awaited. */
  view: PlanView | null;
  /** Whether `view` is of another text than the one shown. */
  isOld: boolean;
  /** Of the last text that had a plan. */
  filled: Filled | null;
  problems: FieldProblem[];
  /** A refusal that is about no field, or that the service was not reached. */
  error: Error | null;
}

const NONE: FieldProblem[] = [];

export function usePlan(spec: SpecText): Planned {
  const [body] = useDebouncedValue(spec.unreadable === null ? spec.json : null, WAIT_MS);
  const { data, error, isPlaceholderData } = usePolled<PlanView>({
    key: ["plan", body],
    fetch: (signal) => {
      // A POST, which the client lets take its time.
      const inTime = AbortSignal.any([signal, AbortSignal.timeout(SILENCE_SECONDS * 1_000)]);
      return planJob({ ...jsonBody<JobSpec>(body ?? "null"), signal: inTime, throwOnError: true });
    },
    seconds: (plan) => (plan?.memory?.state === "computing" ? COMPUTING_SECONDS : SECONDS),
    enabled: body !== null,
    keepPrevious: true,
  });
  const [filled, setFilled] = useState<Filled | null>(null);
  useEffect(() => {
    if (data !== undefined && !isPlaceholderData && body !== null) {
      setFilled({ written: JSON.parse(body), full: data.spec });
    }
  }, [data, isPlaceholderData, body]);
  const isOld = isPlaceholderData || body !== spec.json;
  const problems = error instanceof Failure ? (error.problem.errors ?? NONE) : NONE;
  const isKnown = error === null && spec.unreadable === null;
  return { view: isKnown ? (data ?? null) : null, isOld, filled, problems, error };
}

/** A body that travels as it was written: JavaScript's own numbers would round large ones. */
export function jsonBody<T>(json: string): { body: T; bodySerializer: () => string } {
  return { body: JSON.parse(json) as T, bodySerializer: () => json };
}
