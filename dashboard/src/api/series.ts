/**
 * Series of one job or of several: which there are, their metadata and their figures.
 *
 * Not here: their curves (`curves.ts`).
 */
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import type { Paced } from "@/lib/axes";
import { hasEnded } from "@/lib/ended";
import type { Described } from "@/lib/series";
import { type JobState, listJobSeries, listSeries } from "./generated";
import { LATE_POINTS_MS, summariesQuery } from "./live";
import { usePolled } from "./polling";
import { type Summary, summariesOf } from "./summaries";

/** A job with its plan and spec, which define its axes beside steps and time. */
export interface JobOfCharts extends Paced {
  id: string;
  name: string;
  state: JobState;
  /** For relative time; the first point of a curve where it is not given. */
  started_at?: string | null;
  /** Reference under which its page follows it (`live.ts`); without it, its series are asked for one by one. */
  followedAs?: string;
}

/** Of each series a chart has at most this many places, */
const PLACES_MAX = 1_000;
/** and of all jobs together about so many, because 20 jobs would be a megabyte for each chart; of each of 200 some. */
const PLACES_OF_A_CHART = 4_000;
const PLACES_MIN = 60;
/** The service gives 200,000 at most. Of fewer, each answer is read and drawn between two frames. */
const PLACES_OF_AN_ANSWER = 12_000;
const SERIES_OF_AN_ANSWER = 6;

/** Places of each curve of a chart; twice as many on one that is twice as wide. */
export function placesFor(jobCount: number, isWide = false): number {
  const share = Math.floor(((isWide ? 2 : 1) * PLACES_OF_A_CHART) / Math.max(1, jobCount));
  return Math.max(PLACES_MIN, Math.min(PLACES_MAX, share));
}

/** Names of series in parts, each of which one request can answer for that many jobs. */
export function requestsFor(names: readonly string[], jobCount: number): string[][] {
  const places = jobCount * placesFor(jobCount);
  const size = Math.max(1, Math.min(SERIES_OF_AN_ANSWER, Math.floor(PLACES_OF_AN_ANSWER / places)));
  const parts: string[][] = [];
  for (let at = 0; at < names.length; at += size) parts.push(names.slice(at, at + size));
  return parts;
}

/** Jobs whose points may still arrive: until a few seconds after their end. */
export function useLive(jobs: readonly JobOfCharts[]): ReadonlySet<string> {
  const ending = useRef(new Set<string>());
  const [, lookAgain] = useState(0);
  useEffect(() => {
    const timers: ReturnType<typeof setTimeout>[] = [];
    for (const job of jobs) {
      const { id } = job;
      if (!hasEnded(job)) ending.current.add(id);
      else if (ending.current.has(id))
        timers.push(
          setTimeout(() => {
            ending.current.delete(id);
            lookAgain((count) => count + 1);
          }, LATE_POINTS_MS),
        );
    }
    return () => timers.forEach(clearTimeout);
  }, [jobs]);
  return new Set(jobs.filter((job) => !hasEnded(job) || ending.current.has(job.id)).map(({ id }) => id));
}

export interface Summaries {
  /** Of all jobs, each once, in the order of the service. */
  series: readonly Described[];
  /** By job, then by series. */
  byJob: ReadonlyMap<string, ReadonlyMap<string, Summary>>;
  isPending: boolean;
  error: Error | null;
  retry: () => void;
}

/** Answers about one job have the figures of all series, those about several of the named ones. */
interface Listed {
  series: readonly Described[];
  byJob: ReadonlyMap<string, ReadonlyMap<string, Summary>>;
}

const NO_SERIES: Listed = { series: [], byJob: new Map() };
const NO_NAMES: readonly string[] = [];

/**
 * Series of the jobs with their metadata, and the figures of those that are named; of a single job, of all.
 *
 * Without jobs it asks for nothing.
 */
export function useSummaries(
  jobs: readonly JobOfCharts[],
  live: ReadonlySet<string>,
  names: readonly string[] = NO_NAMES,
): Summaries {
  const ids = jobs.map(({ id }) => id);
  const followedId = jobs.length === 1 && jobs[0]?.followedAs !== undefined ? jobs[0].id : null;
  const followed = useQuery(summariesQuery(followedId ?? ""));
  const { data, isPending, error, refetch } = usePolled<Listed>({
    // A job that ends is asked for once more, because its last points are stored shortly after its end.
    key: ids.length === 1 ? ["job", ids[0], "series"] : ["series", "summaries", ids, names, live.size],
    fetch: async (signal) => {
      if (ids.length === 1) {
        const { data } = await listJobSeries({ path: { reference: ids[0] as string }, signal, throwOnError: true });
        return { data: { series: data.series, byJob: new Map([[data.job_id, summariesOf(data.series)]]) } };
      }
      const { data } = await listSeries({ query: { jobs: ids, names: [...names] }, signal, throwOnError: true });
      return {
        data: {
          series: data.series,
          byJob: new Map(data.jobs.map(({ job_id, series }) => [job_id, summariesOf(series)])),
        },
      };
    },
    // Names of new series, and figures of a comparison: the points themselves are asked for more often.
    seconds: (known) => (known === undefined || known.series.length === 0 ? 4 : 15),
    isFinal: () => live.size === 0,
    enabled: ids.length > 0 && followedId === null,
    keepPrevious: ids.length > 1,
  });
  const listed = followedId === null ? data : listedOf(followedId, followed.data);
  const { series, byJob } = listed ?? NO_SERIES;
  const answer = followedId === null ? { isPending, error } : followed;
  return {
    series: useSame(series.map(metadataOf)),
    byJob,
    isPending: answer.isPending,
    error: listed === undefined ? answer.error : null,
    retry: () => void (followedId === null ? refetch() : followed.refetch()),
  };
}

function listedOf(id: string, known: ReadonlyMap<string, Summary> | undefined): Listed | undefined {
  return known && { series: [...known.values()], byJob: new Map([[id, known]]) };
}

/** Without its figures, which change with each point. */
function metadataOf({ name, unit, kind, direction, group, axis, domain }: Described): Described {
  return { name, unit, kind, direction, group, axis, domain };
}

/** Keep the same list while its contents are equal: answers come every few seconds, and a new list draws all charts. */
function useSame(series: readonly Described[]): readonly Described[] {
  const kept = useRef(series);
  if (kept.current !== series && JSON.stringify(kept.current) !== JSON.stringify(series)) kept.current = series;
  return kept.current;
}
