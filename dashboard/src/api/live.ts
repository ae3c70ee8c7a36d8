/**
 * A job that its page follows: one request per tick for the job, its series, their new points and its new events.
 *
 * All parts are kept together with the cursor that they belong to, so that a lost one is requested again with the others.
 * Not here: jobs that a page compares (`curves.ts`, `series.ts`).
 */
import {
  type QueryClient,
  type QueryKey,
  queryOptions,
  skipToken,
  useQuery,
  useQueryClient,
} from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { coarsened } from "@/lib/coarsened";
import { appended, type Curve, curveOf } from "@/lib/curves";
import { hasEnded } from "@/lib/ended";
import { type EventView, getJobLive, type JobLiveView, type JobView } from "./generated";
import { usePolled } from "./polling";
import { type Summary, summariesOf } from "./summaries";

/** The last points of a job are stored shortly after its end. */
export const LATE_POINTS_MS = 5_000;
const TICK_SECONDS = 3;
/** Until charts that came onto the screen are asked for. */
const CATCH_UP_SECONDS = 0.05;
/** Figures are asked for less often than points: the service reads all of a series for them. */
const SUMMARIES_MS = 14_000;
/** Of each series when its chart is first shown; of twice as many, neighbours are joined. */
const PLACES = 500;
/** The service gives 200,000 places at most. */
const NAMES_MAX = 100;

type CurvesOfJob = ReadonlyMap<string, readonly Curve[]>;

export interface Told {
  /** Oldest first, and without a gap. */
  events: readonly EventView[];
  /** From where older ones are read; null if the first of all is known. */
  older: string | null;
}

interface Live {
  cursor: string;
  /** By series, one curve for each attempt. */
  curves: CurvesOfJob;
  summaries: ReadonlyMap<string, Summary>;
  summariesAt: number;
  told: Told;
  /** Time at which its end was seen; 0 if it had ended before. */
  endedAt: number | null;
  /** Nothing will be stored any more. */
  isFinal: boolean;
}

const NO_CURVES: CurvesOfJob = new Map();
/** By job: the series of the charts on the screen, by chart. */
const wanted = new Map<string, Map<object, readonly string[]>>();
/** By job: the series that the page has asked for since its last complete answer. */
const asked = new Map<string, Set<string>>();

export function jobKey(reference: string): QueryKey {
  return ["job", reference];
}

export function liveKey(id: string): QueryKey {
  return ["job", id, "live"];
}

/** The job of a page, which is followed until a few seconds after its end. */
export function useFollowedJob(reference: string) {
  const queries = useQueryClient();
  const job = usePolled<JobView>({
    key: jobKey(reference),
    fetch: async (signal) => ({ data: await follow(queries, reference, signal) }),
    seconds: (known) => (known !== undefined && isBehind(known.id) ? CATCH_UP_SECONDS : TICK_SECONDS),
    isFinal: (known) => hasEnded(known) && liveOf(queries, known.id)?.isFinal !== false,
  });
  // Keeps what is known while no part of the page shows it. Its changes are none of the page itself.
  useQuery({ queryKey: liveKey(job.data?.id ?? ""), queryFn: skipToken, notifyOnChangeProps: [] });
  return job;
}

/** What is known of a job that a page follows. */
function liveOf(queries: QueryClient, id: string): Live | undefined {
  return queries.getQueryData<Live>(liveKey(id));
}

async function follow(queries: QueryClient, reference: string, signal: AbortSignal): Promise<JobView> {
  const id = queries.getQueryData<JobView>(jobKey(reference))?.id;
  const known = id === undefined ? undefined : liveOf(queries, id);
  const names = id === undefined ? [] : wantedOf(id);
  if (id !== undefined) asked.set(id, new Set([...(asked.get(id) ?? []), ...names]));
  const { data } = await getJobLive({
    path: { reference },
    query: {
      names,
      attempts: "all",
      max_points: PLACES,
      ...(known === undefined ? {} : { since: known.cursor, summaries: needsSummaries(known) }),
    },
    signal,
    throwOnError: true,
  });
  const { job } = data;
  if (data.complete) asked.set(job.id, new Set(job.id === id ? names : []));
  queries.setQueryData<Live>(liveKey(job.id), (before) => grown(before, known, data));
  return job;
}

function needsSummaries({ summaries, summariesAt, endedAt }: Live): boolean {
  return endedAt !== null || summaries.size === 0 || Date.now() - summariesAt >= SUMMARIES_MS;
}

/** `sent` is what was known when the answer was requested. */
function grown(before: Live | undefined, sent: Live | undefined, answer: JobLiveView): Live | undefined {
  const { job, complete, cursor } = answer;
  const base = complete ? undefined : before;
  // Another answer was first, or what it adds to is gone: it is requested again.
  if (!complete && (base === undefined || base.cursor !== sent?.cursor)) return before;
  const now = Date.now();
  const summaries = answer.summaries == null ? (before?.summaries ?? new Map()) : summariesOf(answer.summaries);
  const isNew = Object.keys(job.progress?.latest ?? {}).some((name) => !summaries.has(name));
  const endedAt = hasEnded(job) ? (before === undefined ? 0 : (before.endedAt ?? now)) : null;
  return {
    cursor,
    curves: withMore(base?.curves ?? NO_CURVES, answer.series.map(curveOf)),
    summaries,
    summariesAt: isNew ? 0 : answer.summaries == null ? (before?.summariesAt ?? 0) : now,
    told:
      base === undefined ? { events: answer.events, older: answer.older_events } : withNewer(base.told, answer.events),
    endedAt,
    isFinal: endedAt !== null && now - endedAt >= LATE_POINTS_MS,
  };
}

function withNewer(told: Told, events: readonly EventView[]): Told {
  return events.length === 0 ? told : { ...told, events: [...told.events, ...events] };
}

/** Add a page of older events, which was asked for from `cursor`: newest first, as the service lists them. */
export function addOlder(
  queries: QueryClient,
  id: string,
  cursor: string,
  page: { items: readonly EventView[]; next_cursor?: string | null },
): void {
  queries.setQueryData<Live>(liveKey(id), (live) => {
    if (live === undefined || live.told.older !== cursor) return live;
    const events = [...page.items.toReversed(), ...live.told.events];
    return { ...live, told: { events, older: page.next_cursor ?? null } };
  });
}

export function toldOf(queries: QueryClient, id: string): Told | undefined {
  return liveOf(queries, id)?.told;
}

/** The events of a job that its page follows, as far as they are known. */
export function useTold(id: string): Told | undefined {
  const { data } = useQuery<Live, Error, Told>({
    queryKey: liveKey(id),
    queryFn: skipToken,
    select: ({ told }) => told,
  });
  return data;
}

/** Metadata and figures of the series of a job that its page follows, as a query. */
export const summariesQuery = (id: string) =>
  queryOptions({ queryKey: liveKey(id), queryFn: skipToken, select: ({ summaries }: Live) => summaries });

/** Return the curves with new points, as many as a chart can show. */
function withMore(before: CurvesOfJob, more: readonly Curve[]): CurvesOfJob {
  if (more.length === 0) return before;
  const after = new Map(before);
  for (const curve of more) {
    const attempts = after.get(curve.name) ?? [];
    const known = attempts.find(({ attempt }) => attempt === curve.attempt);
    const whole = known === undefined ? curve : appended(known, curve);
    const few = whole.step.length > 2 * PLACES ? coarsened(whole, PLACES) : whole;
    after.set(
      curve.name,
      known === undefined ? [...attempts, few] : attempts.map((each) => (each === known ? few : each)),
    );
  }
  return after;
}

function wantedOf(id: string): string[] {
  const names = [...(wanted.get(id)?.values() ?? [])].flat();
  // In one order, so that the same request has the same address.
  return [...new Set(names)].sort().slice(0, NAMES_MAX);
}

/** There is something on the screen that was never asked for. */
function isBehind(id: string): boolean {
  const known = asked.get(id);
  return known === undefined || wantedOf(id).some((name) => !known.has(name));
}

interface Followed {
  id: string;
  /** Under which the page follows it; null of a job that no page follows. */
  reference: string | null;
  names: readonly string[];
  /** Its chart is on the screen. */
  enabled: boolean;
}

/** Curves of a job that its page follows; null as long as there are none. They grow while `enabled`. */
export function useFollowedCurves({ id, reference, names, enabled }: Followed): CurvesOfJob | null {
  const queries = useQueryClient();
  const listed = names.join(",");
  useEffect(() => {
    if (!enabled || reference === null || listed === "") return;
    const chart = {};
    const charts = wanted.get(id) ?? new Map<object, readonly string[]>();
    wanted.set(id, charts.set(chart, listed.split(",")));
    // All charts that come onto the screen together are asked for together.
    queueMicrotask(() => {
      if (isBehind(id))
        void queries.refetchQueries({ queryKey: jobKey(reference), exact: true }, { cancelRefetch: false });
    });
    return () => {
      charts.delete(chart);
      if (charts.size === 0 && wanted.get(id) === charts) wanted.delete(id);
    };
  }, [queries, id, reference, listed, enabled]);
  const { data } = useQuery<Live, Error, CurvesOfJob>({
    queryKey: liveKey(reference === null ? "" : id),
    queryFn: skipToken,
    select: ({ curves }) => curves,
  });
  const kept = useRef<CurvesOfJob>(NO_CURVES);
  const mine = new Map(names.flatMap((name) => (data?.has(name) ? [[name, data.get(name) as readonly Curve[]]] : [])));
  const isSame =
    mine.size === kept.current.size && [...mine].every(([name, curves]) => kept.current.get(name) === curves);
  if (!isSame) kept.current = mine;
  return kept.current.size === 0 ? null : kept.current;
}
