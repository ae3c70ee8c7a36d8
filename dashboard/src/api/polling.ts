/**
 * Polling: one interval that the user sets or pauses, none for final data, none in hidden tabs.
 */
import {
  keepPreviousData,
  QueryClient,
  type QueryKey,
  type UseQueryOptions,
  type UseQueryResult,
  useQuery,
} from "@tanstack/react-query";
import type { PollMeta } from "./age";
import { Failure } from "./client";
import { type Pace, usePace } from "./pace";

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      // A poll is its own retry; the former data stay, and the shell shows their age.
      retry: false,
      staleTime: 1_000,
      refetchOnWindowFocus: true,
      networkMode: "always",
    },
    mutations: { retry: false, networkMode: "always" },
  },
});

export interface Polled<T> {
  key: QueryKey;
  fetch: (signal: AbortSignal) => Promise<{ data: T }>;
  /** Seconds between polls at the normal pace; a function takes the newest answer. */
  seconds: number | ((data: T | undefined) => number);
  /** True for data that will not change any more. */
  isFinal?: (data: T) => boolean;
  enabled?: boolean;
  /** Keep showing the former answer while that of another key comes (paging, zooming). */
  keepPrevious?: boolean;
}

/** The options of a polled query, where there are several at once (`useQueries`). */
export function polled<T>(
  { key, fetch, seconds, isFinal, enabled, keepPrevious }: Polled<T>,
  pace: Pace,
): UseQueryOptions<T, Error> {
  return {
    queryKey: key,
    queryFn: async ({ signal }) => (await fetch(signal)).data,
    meta: {
      everySeconds: typeof seconds === "function" ? seconds(undefined) : seconds,
      isFinal: (data: unknown) => isFinal?.(data as T) ?? false,
    } satisfies PollMeta,
    enabled: enabled ?? true,
    placeholderData: keepPrevious ? keepPreviousData : undefined,
    refetchInterval: (query) => {
      if (pace.factor === 0) return false;
      const { data, error } = query.state;
      if (data !== undefined && isFinal?.(data)) return false;
      // A refused request is refused again. Other failures may pass: the poll is repeated like
      // any other.
      if (error instanceof Failure && !error.mayPass) return false;
      return (typeof seconds === "function" ? seconds(data) : seconds) * 1_000 * pace.factor;
    },
  };
}

export function usePolled<T>(options: Polled<T>): UseQueryResult<T, Error> {
  return useQuery<T, Error>(polled(options, usePace()));
}
