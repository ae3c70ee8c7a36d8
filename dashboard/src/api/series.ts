/**
 * Series of one job or of several: which there are, their metadata and their figures.
 *
 * Not here: their curves (`curves.ts`).
 */
import { type UseQueryOptions, useQueries } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import type { Paced } from "@/lib/axes";
import { hasEnded } from "@/lib/ended";
import { type Described, merged } from "@/lib/series";
import { type JobState, listJobSeries } from "./generated";
import { LATE_POINTS_MS, summariesQuery } from "./live";
import { usePace } from "./pace";
import { polled } from "./polling";
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

/** Of each series a chart has at most this many places. */
export const PLACES = 1_000;
/** The service gives 200,000 at most. Of fewer, each answer is read and drawn between two frames. */
const PLACES_OF_AN_ANSWER = 40_000;
const SERIES_OF_AN_ANSWER = 6;

/** Names of series in parts, each of which one request can answer for that many jobs. */
export function requestsFor(names: readonly string[], jobCount: number): string[][] {
  const size = Math.max(1, Math.min(SERIES_OF_AN_ANSWER, Math.floor(PLACES_OF_AN_ANSWER / (jobCount * PLACES))));
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

/** Series of the jobs, each with its metadata, its last value and its extremes. */
export function useSummaries(jobs: readonly JobOfCharts[], live: ReadonlySet<string>): Summaries {
  const pace = usePace();
  const answers = useQueries({
    queries: jobs.map(({ id, followedAs }) =>
      followedAs !== undefined
        ? (summariesQuery(id) as unknown as UseQueryOptions<ReadonlyMap<string, Summary>, Error>)
        : polled<ReadonlyMap<string, Summary>>(
            {
              key: ["job", id, "series"],
              fetch: async (signal) => {
                const { data } = await listJobSeries({ path: { reference: id }, signal, throwOnError: true });
                return { data: summariesOf(data.series) };
              },
              // Names of new series, and figures of a comparison: the points themselves are asked for more often.
              seconds: (known) => (known === undefined || known.size === 0 ? 4 : 15),
              isFinal: () => !live.has(id),
            },
            pace,
          ),
    ),
  });
  const found = answers.flatMap(({ data }) => (data === undefined ? [] : [data]));
  const series = useSame(merged(found.map((each) => each.values())).map(metadataOf));
  return {
    series,
    byJob: new Map(jobs.map(({ id }, index) => [id, answers[index]?.data ?? new Map()])),
    isPending: answers.some(({ isPending }) => isPending),
    error: answers.find(({ error, data }) => error !== null && data === undefined)?.error ?? null,
    retry: () => {
      for (const answer of answers) if (answer.error !== null) void answer.refetch();
    },
  };
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
