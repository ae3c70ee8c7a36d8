/** How old the answers are that a page shows: every polled query tells by itself when it is overdue. */
import { type Query, type QueryKey, useQueryClient } from "@tanstack/react-query";
import { useNow } from "@/components/useNow";
import { type Pace, usePace } from "./pace";

/** An answer is old once so many polls in a row have brought none. */
const MISSED_POLLS = 3;
/** Polls that follow each other faster than this read a long list in parts. */
const SECONDS_LEAST = 2;

/** What a polled query says about itself, as `meta` of its options. */
export interface PollMeta extends Record<string, unknown> {
  everySeconds: number;
  isFinal: (data: unknown) => boolean;
}

export function maxAgeSeconds(everySeconds: number, pace: Pace): number {
  return MISSED_POLLS * Math.max(SECONDS_LEAST, everySeconds) * pace.factor;
}

/** When the answer came that is shown, if it is old; null of a fresh one, a final one, and where polling is paused. */
export function oldSince({ meta, state }: Pick<Query, "meta" | "state">, now: number, pace: Pace): number | null {
  const { everySeconds, isFinal } = (meta ?? {}) as Partial<PollMeta>;
  if (everySeconds === undefined || pace.factor === 0) return null;
  if (state.data === undefined || isFinal?.(state.data)) return null;
  return now - state.dataUpdatedAt > maxAgeSeconds(everySeconds, pace) * 1_000 ? state.dataUpdatedAt : null;
}

export interface Old {
  /** Of the oldest. */
  since: number;
  count: number;
  error: Error | null;
  retry: () => void;
}

/** The old answers on the page whose key begins with `prefix`; of all of them without one. */
export function useOld(prefix?: QueryKey): Old | null {
  const queries = useQueryClient();
  const pace = usePace();
  const now = useNow();
  const old = queries
    .getQueryCache()
    .findAll({ queryKey: prefix, type: "active" })
    .flatMap((query) => {
      const since = oldSince(query, now, pace);
      return since === null ? [] : [{ query, since }];
    });
  if (old.length === 0) return null;
  return {
    since: Math.min(...old.map(({ since }) => since)),
    count: old.length,
    error: old.find(({ query }) => query.state.error !== null)?.query.state.error ?? null,
    retry: () => {
      for (const { query } of old) void query.fetch();
    },
  };
}
