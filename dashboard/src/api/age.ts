/** Age of the answers on a page: every polled query reports when it is overdue. */
import type { Query } from "@tanstack/react-query";
import type { Pace } from "./pace";

/** An answer is old once so many polls in a row have brought none. */
const MISSED_POLLS = 3;
/** Polls that follow each other faster than this read a long list in parts. */
const SECONDS_LEAST = 2;

/** Metadata of a polled query, `meta` in its options. */
export interface PollMeta extends Record<string, unknown> {
  everySeconds: number;
  isFinal: (data: unknown) => boolean;
}

export function maxAgeSeconds(everySeconds: number, pace: Pace): number {
  return MISSED_POLLS * Math.max(SECONDS_LEAST, everySeconds) * pace.factor;
}

/** Time of the shown answer if it is old; null if it is fresh or final, or polling is paused. */
export function oldSince({ meta, state }: Pick<Query, "meta" | "state">, now: number, pace: Pace): number | null {
  const { everySeconds, isFinal } = (meta ?? {}) as Partial<PollMeta>;
  if (everySeconds === undefined || pace.factor === 0) return null;
  if (state.data === undefined || isFinal?.(state.data)) return null;
  return now - state.dataUpdatedAt > maxAgeSeconds(everySeconds, pace) * 1_000 ? state.dataUpdatedAt : null;
}
