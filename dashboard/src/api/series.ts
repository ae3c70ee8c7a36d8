/**
 * Series of one job or of several: which there are, and their curves.
 *
 * What has ended is asked for once. Of what still runs, only the points that were stored since the last answer are asked
 * for again and again, and added to those that are known.
 */
import { type QueryKey, useQueries, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import type { Paced } from "@/lib/axes";
import { appended, type Curve, curveOf, type Figures, figuresOf } from "@/lib/curves";
import { getJobMetrics, getSeries, type JobState } from "./generated";
import { usePace } from "./pace";
import { polled, usePolled } from "./polling";

/** Its plan and its spec say which axes it has beside steps and time. */
export interface JobOfCharts extends Paced {
  id: string;
  name: string;
  state: JobState;
  /** For relative time; the first point of a curve where it is not given. */
  started_at?: string | null;
}

/** Of each series a chart has at most this many places. */
export const PLACES = 1_000;
/** The service gives 200,000 at most. Of fewer, each answer is read and drawn between two frames. */
const PLACES_OF_AN_ANSWER = 40_000;
const SERIES_OF_AN_ANSWER = 6;
/** The last points of a job are stored shortly after its end. */
const LATE_POINTS_MS = 5_000;

const ENDED: readonly JobState[] = ["succeeded", "failed", "cancelled"];

/** Names of series in parts, each of which one request can answer for that many jobs. */
export function requestsFor(names: readonly string[], jobCount: number): string[][] {
  const size = Math.max(1, Math.min(SERIES_OF_AN_ANSWER, Math.floor(PLACES_OF_AN_ANSWER / (jobCount * PLACES))));
  const parts: string[][] = [];
  for (let at = 0; at < names.length; at += size) parts.push(names.slice(at, at + size));
  return parts;
}

/** The jobs whose points may still come: until a few seconds after their end. */
export function useLive(jobs: readonly JobOfCharts[]): ReadonlySet<string> {
  const ending = useRef(new Set<string>());
  const [, lookAgain] = useState(0);
  useEffect(() => {
    const timers: ReturnType<typeof setTimeout>[] = [];
    for (const { id, state } of jobs) {
      if (!ENDED.includes(state)) ending.current.add(id);
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
  return new Set(jobs.filter(({ id, state }) => !ENDED.includes(state) || ending.current.has(id)).map(({ id }) => id));
}

export interface Summary {
  unit: string;
  /** Points of it. */
  count: number;
  figures: Figures;
}

export interface Summaries {
  /** Of all jobs, each once. */
  names: string[];
  /** By job, then by series. */
  byJob: ReadonlyMap<string, ReadonlyMap<string, Summary>>;
  isPending: boolean;
  error: Error | null;
  retry: () => void;
}

/** Which series the jobs have, each with its last value and its extremes: one bucket of all its points says that. */
export function useSummaries(jobs: readonly JobOfCharts[], live: ReadonlySet<string>): Summaries {
  const pace = usePace();
  const answers = useQueries({
    queries: jobs.map(({ id }) =>
      polled<ReadonlyMap<string, Summary>>(
        {
          key: ["job", id, "metrics", "summary"],
          fetch: async (signal) => {
            const { data } = await getJobMetrics({
              path: { reference: id },
              query: { max_points: 1 },
              signal,
              throwOnError: true,
            });
            const found = new Map<string, Summary>();
            for (const view of data.series) {
              const figures = figuresOf([curveOf(view)]);
              if (figures !== null) found.set(view.name, { unit: view.unit, count: view.count, figures });
            }
            return { data: found };
          },
          seconds: 4,
          isFinal: () => !live.has(id),
        },
        pace,
      ),
    ),
  });
  const joined = [...new Set(answers.flatMap(({ data }) => [...(data?.keys() ?? [])]))].sort().join("\n");
  const names = useMemo(() => (joined === "" ? [] : joined.split("\n")), [joined]);
  return {
    names,
    byJob: new Map(jobs.map(({ id }, index) => [id, answers[index]?.data ?? new Map()])),
    isPending: answers.some(({ isPending }) => isPending),
    error: answers.find(({ error, data }) => error !== null && data === undefined)?.error ?? null,
    retry: () => {
      for (const answer of answers) if (answer.error !== null) void answer.refetch();
    },
  };
}

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
  /** What the answers are about: all steps, or those of the zoom, which may be the one before while the new one comes. */
  steps: Steps | null;
  error: Error | null;
  retry: () => void;
}

interface Wanted {
  jobs: readonly string[];
  live: ReadonlySet<string>;
  names: readonly string[];
  steps: Steps | null;
  enabled: boolean;
}

export function useCurves({ jobs, live, names, steps, enabled }: Wanted): Curves {
  const running = useAnswer(
    jobs.filter((id) => live.has(id)),
    names,
    steps,
    enabled,
    false,
  );
  const ended = useAnswer(
    jobs.filter((id) => !live.has(id)),
    names,
    steps,
    enabled,
    true,
  );
  const curves = useMemo(() => {
    if (running.data === undefined && ended.data === undefined) return null;
    // A job that has just ended is in both for a moment; what was asked for after its end is the whole of it.
    return new Map([...(running.data?.curves ?? []), ...(ended.data?.curves ?? [])]);
  }, [running.data, ended.data]);
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

/** The beginning of the keys of what is asked about running jobs, zoomed or not. */
export function runningKey(jobs: readonly string[], names: readonly string[]): QueryKey {
  return ["series", "running", jobs, names];
}

/** What is known grows point by point; once it is twice as fine as was asked for, all of it is asked for again. */
function hasRoom({ curves }: Answer): boolean {
  for (const series of curves.values())
    for (const attempts of series.values()) if (attempts.some(({ step }) => step.length > 2 * PLACES)) return false;
  return true;
}

/** The curves of one job with what came to them. */
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

function useAnswer(
  jobs: readonly string[],
  names: readonly string[],
  steps: Steps | null,
  enabled: boolean,
  isFinal: boolean,
) {
  const queries = useQueryClient();
  const key: QueryKey = [
    ...(isFinal ? ["series", "ended", jobs, names] : runningKey(jobs, names)),
    steps?.from ?? null,
    steps?.to ?? null,
  ];
  return usePolled<Answer>({
    key,
    fetch: async (signal) => {
      const known = queries.getQueryData<Answer>(key);
      const since = known !== undefined && hasRoom(known) ? known : null;
      const { data } = await getSeries({
        query: {
          jobs: [...jobs],
          names: [...names],
          max_points: PLACES,
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
    seconds: 2,
    isFinal: () => isFinal,
    enabled: enabled && jobs.length > 0 && names.length > 0,
    keepPrevious: true,
  });
}
