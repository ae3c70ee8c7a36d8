/** Answers of the service about series, for tests. */
import type { SeriesSummary } from "@/api/generated";
import { UNKNOWN } from "@/lib/series";

export function summary(name: string, changes: Partial<SeriesSummary> = {}): SeriesSummary {
  return {
    ...UNKNOWN,
    name,
    attempt: 1,
    last: 1,
    last_step: 9,
    last_time: 9,
    count: 10,
    non_finite: 0,
    min: 0,
    max: 2,
    best: null,
    best_step: null,
    ...changes,
  };
}
