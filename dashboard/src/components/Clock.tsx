/**
 * The time for what is told to go on: how long a job runs, waits or starts. It stands at the last
 * answer while nothing is heard, because what goes on since then is not known.
 *
 * Not here: ages of moments that do not change, such as a submit (`useNow`).
 */
import { type QueryKey, useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext } from "react";
import { oldSince } from "@/api/age";
import { useConnection } from "@/api/connection";
import { usePace } from "@/api/pace";
import { useNow } from "./useNow";

export interface Time {
  now: number;
  /** Since when nothing is heard; null while answers come. */
  silentSince: number | null;
}

const Current = createContext<Time | null>(null);

/** `of` is the key of the one answer that the times below are told of. */
export function Clock({ of, children }: { of: QueryKey; children: ReactNode }) {
  const now = useNow();
  const pace = usePace();
  const { lostSince } = useConnection();
  const query = useQueryClient().getQueryCache().find({ queryKey: of, exact: true });
  const isSilent =
    query?.state.data !== undefined && (lostSince !== null || pace.factor === 0 || oldSince(query, now, pace) !== null);
  const silentSince = isSilent ? query.state.dataUpdatedAt : null;
  return <Current.Provider value={{ now: silentSince ?? now, silentSince }}>{children}</Current.Provider>;
}

/** The time of the nearest `Clock`; without one, a clock that never stands. */
export function useClock(): Time {
  const now = useNow();
  return useContext(Current) ?? { now, silentSince: null };
}
