/**
 * Curves of jobs. Those of ended jobs are requested once; for running jobs only the points stored
 * since the last answer are requested and appended.
 */
import { type QueryKey, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { appended, type Curve, curveOf } from "@/lib/curves";
import { getSeries } from "./generated";
import { useFollowedCurves } from "./live";
import { usePolled } from "./polling";

/** Seconds between polls of one request; of several on the screen, each waits for its turn. */
const TURN_SECONDS = 3;

/** By job, then by series, one curve for each attempt. */
export type CurvesOfJobs = ReadonlyMap<string, ReadonlyMap<string, readonly Curve[]>>;

export interface Steps {
  from: number;
  to: number;
}

interface Answer {
  steps: Steps | null;
  curves: CurvesOfJobs;
  /** Of each job, in the order asked: where to go on. */
  cursors: readonly string[];
}

export interface Curves {
  /** Null as long as there is no answer at all. */
  curves: CurvesOfJobs | null;
  /** Range of the answers: all steps, or those of the zoom, possibly of the zoom before. */
  steps: Steps | null;
  error: Error | null;
  retry: () => void;
}

interface Wanted {
  jobs: readonly string[];
  /** Reference under which the page of the only job follows it; null if none does. */
  followedAs: string | null;
  live: ReadonlySet<string>;
  names: readonly string[];
  /** Of each curve, at most. */
  places: number;
  steps: Steps | null;
  enabled: boolean;
}

export function useCurves({ jobs, followedAs, live, ...wanted }: Wanted): Curves {
  const alone = jobs[0] ?? "";
  // Of a zoom, the page has no finer points than the service's first answer.
  const isFollowed = followedAs !== null && wanted.steps === null;
  const followed = useFollowedCurves({
    id: alone,
    reference: isFollowed ? followedAs : null,
    names: wanted.names,
    enabled: wanted.enabled && live.has(alone),
  });
  const running = useAnswer({ ...wanted, jobs: jobs.filter((id) => !isFollowed && live.has(id)), isFinal: false });
  const ended = useAnswer({ ...wanted, jobs: jobs.filter((id) => !live.has(id)), isFinal: true });
  const curves = useMemo(() => {
    if (followed === null && running.data === undefined && ended.data === undefined) return null;
    const first: CurvesOfJobs = followed === null ? new Map() : new Map([[alone, followed]]);
    // A job that has just ended is in several for a moment; the answer after its end is complete.
    return new Map([...first, ...(running.data?.curves ?? []), ...(ended.data?.curves ?? [])]);
  }, [alone, followed, running.data, ended.data]);
  return {
    curves,
    steps: running.data?.steps ?? ended.data?.steps ?? null,
    error: running.error ?? ended.error,
    retry: () => {
      void running.refetch();
      void ended.refetch();
    },
  };
}

const LIVE_ON_SCREEN = { queryKey: ["series", "running"], type: "active" } as const;

/** Prefix of the keys of requests about running jobs, zoomed or not. */
export function runningKey(jobs: readonly string[], names: readonly string[]): QueryKey {
  return ["series", "running", jobs, names];
}

/**
 * Points are appended one by one; at twice the requested resolution everything is requested again.
 */
function hasRoom({ curves }: Answer, places: number): boolean {
  for (const series of curves.values())
    for (const attempts of series.values()) if (attempts.some(({ step }) => step.length > 2 * places)) return false;
  return true;
}

/** Return the curves of one job with new points. */
function withMore(
  before: ReadonlyMap<string, readonly Curve[]>,
  more: readonly Curve[],
): ReadonlyMap<string, readonly Curve[]> {
  const after = new Map(before);
  for (const curve of more) {
    const attempts = after.get(curve.name) ?? [];
    const known = attempts.find(({ attempt }) => attempt === curve.attempt);
    after.set(
      curve.name,
      known === undefined
        ? [...attempts, curve]
        : attempts.map((each) => (each === known ? appended(known, curve) : each)),
    );
  }
  return after;
}

function useAnswer({
  jobs,
  names,
  places,
  steps,
  enabled,
  isFinal,
}: Omit<Wanted, "live" | "followedAs"> & { isFinal: boolean }) {
  const queries = useQueryClient();
  const key: QueryKey = [
    ...(isFinal ? ["series", "ended", jobs, names] : runningKey(jobs, names)),
    places,
    steps?.from ?? null,
    steps?.to ?? null,
  ];
  return usePolled<Answer>({
    key,
    fetch: async (signal) => {
      const known = queries.getQueryData<Answer>(key);
      const since = known !== undefined && hasRoom(known, places) ? known : null;
      const { data } = await getSeries({
        query: {
          jobs: [...jobs],
          names: [...names],
          max_points: places,
          attempts: "all",
          ...(steps === null ? {} : { from_step: steps.from, to_step: steps.to }),
          ...(since === null ? {} : { since: [...since.cursors] }),
        },
        signal,
        throwOnError: true,
      });
      // Nothing new is the very same answer, so that nothing is drawn again.
      if (since !== null && data.jobs.every(({ series, complete }) => !complete && series.length === 0))
        return { data: since };
      const curves = new Map<string, ReadonlyMap<string, readonly Curve[]>>();
      for (const { job_id, series, complete } of data.jobs) {
        const before = complete ? undefined : since?.curves.get(job_id);
        curves.set(job_id, withMore(before ?? new Map(), series.map(curveOf)));
      }
      return { data: { steps, curves, cursors: data.jobs.map(({ cursor }) => cursor) } };
    },
    seconds: () => TURN_SECONDS * Math.max(1, queries.getQueryCache().findAll(LIVE_ON_SCREEN).length),
    isFinal: () => isFinal,
    enabled: enabled && jobs.length > 0 && names.length > 0,
    keepPrevious: true,
  });
}
