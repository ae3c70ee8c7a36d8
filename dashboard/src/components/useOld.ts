/** Old answers on the page, checked every second. */
import { type QueryKey, useQueryClient } from "@tanstack/react-query";
import { oldSince } from "@/api/age";
import { usePace } from "@/api/pace";
import { useNow } from "./useNow";

export interface Old {
  /** Of the oldest. */
  since: number;
  count: number;
  error: Error | null;
  retry: () => void;
}

const ALL: readonly QueryKey[] = [[]];

/** Old answers whose key starts with one of `prefixes`; all of them without any. */
export function useOld(prefixes = ALL): Old | null {
  const cache = useQueryClient().getQueryCache();
  const pace = usePace();
  const now = useNow();
  const old = prefixes
    .flatMap((queryKey) => cache.findAll({ queryKey, type: "active" }))
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
