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

/** Interval of a component that follows its `Clock` alone. */
const NEVER = Number.MAX_SAFE_INTEGER;

const Current = createContext<Time | null>(null);

interface ClockProps {
  /** Key of the one answer that has the times below. */
  of: QueryKey;
  /** A second for each of some hundred rows is more than a reader needs, and a browser can do. */
  everySeconds?: number;
  children: ReactNode;
}

export function Clock({ of, everySeconds, children }: ClockProps) {
  const now = useNow(everySeconds);
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
  const time = useContext(Current);
  const now = useNow(time === null ? 1 : NEVER);
  return time ?? { now, silentSince: null };
}
