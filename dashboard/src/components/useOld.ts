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

/** Old answers whose key starts with `prefix`; all of them without one. */
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
