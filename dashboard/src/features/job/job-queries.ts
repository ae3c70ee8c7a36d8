/** What the parts of a job's page ask for. All is asked once more when the job ends, and then no more. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import {
  type AttemptView,
  type CheckpointView,
  type EventView,
  getJob,
  getJobMetrics,
  getJobSpec,
  type JobView,
  listJobAttempts,
  listJobCheckpoints,
  listJobEvents,
  type PageEventView,
  type SeriesView,
} from "@/api/generated";
import { usePolled } from "@/api/polling";
import { codeOf, isCommit } from "./job-code";
import { NEWEST_STEPS, SERIES } from "./time-shares";

const EVENTS_PER_PAGE = 500;
/** Pages of one poll: a long story is read over several of them, which follow each other closely. */
const PAGES_AT_ONCE = 10;
const READING_ON_SECONDS = 0.1;

export function hasEnded({ state }: Pick<JobView, "state">): boolean {
  return state === "succeeded" || state === "failed" || state === "cancelled";
}

export function useJob(reference: string) {
  return usePolled<JobView>({
    key: ["job", reference],
    fetch: (signal) => getJob({ path: { reference }, signal, throwOnError: true }),
    seconds: 2,
    isFinal: hasEnded,
  });
}

interface Story {
  /** Of pages that are full, and will not change. */
  done: readonly EventView[];
  /** Of the page that begins after `cursor`: the last one, which grows. */
  newest: readonly EventView[];
  cursor: number;
  isWhole: boolean;
}

async function eventsPage(reference: string, cursor: number, signal: AbortSignal): Promise<PageEventView> {
  const query = { cursor, limit: EVENTS_PER_PAGE };
  return (await listJobEvents({ path: { reference }, query, signal, throwOnError: true })).data;
}

interface Events {
  /** Oldest first. */
  events: readonly EventView[] | undefined;
  /** False while newer ones are still being read. */
  isWhole: boolean;
  error: Error | null;
  readOn: () => void;
}

/**
 * All events so far; only what is new is asked for.
 *
 * The service tells them forward only, so that the newest are known once all are read: 500 with each request.
 */
export function useJobEvents(job: JobView): Events {
  const queries = useQueryClient();
  const ended = hasEnded(job);
  const key = ["job", job.id, "events", ended];
  const { data, error, refetch } = usePolled<Story>({
    key,
    fetch: async (signal) => {
      // What was read while the job ran is not read again because it ended.
      const before = queries.getQueryData<Story>(["job", job.id, "events", false]);
      const known = queries.getQueryData<Story>(key) ?? before;
      let done = known?.done ?? [];
      let cursor = known?.cursor ?? 0;
      for (let asked = 0; asked < PAGES_AT_ONCE; asked += 1) {
        const { items, next_cursor: next } = await eventsPage(job.id, cursor, signal);
        if (next == null) return { data: { done, newest: items, cursor, isWhole: true } };
        done = [...done, ...items];
        cursor = Number(next);
      }
      return { data: { done, newest: [], cursor, isWhole: false } };
    },
    seconds: queries.getQueryData<Story>(key)?.isWhole === false ? READING_ON_SECONDS : 2,
    isFinal: ({ isWhole }) => ended && isWhole,
    keepPrevious: true,
  });
  const events = useMemo(() => data && [...data.done, ...data.newest], [data]);
  return { events, isWhole: data?.isWhole ?? false, error, readOn: () => void refetch() };
}

/** Newest first; as many as the service lists. */
export function useJobAttempts(job: JobView) {
  return usePolled<AttemptView[]>({
    // Whatever becomes of an attempt makes a new version of its job, and that is asked for anyway.
    key: ["job", job.id, "attempts", job.version],
    fetch: async (signal) => {
      const { data } = await listJobAttempts({ path: { reference: job.id }, signal, throwOnError: true });
      return { data: data.items };
    },
    seconds: 5,
    isFinal: () => true,
    keepPrevious: true,
  });
}

/** What the job runs by: its spec with every default, which never changes. */
export function useWholeSpec(job: JobView, isWanted: boolean) {
  return useQuery({
    queryKey: ["job", job.id, "spec"],
    queryFn: async ({ signal }) =>
      (await getJobSpec({ path: { reference: job.id }, signal, throwOnError: true })).data.spec,
    enabled: isWanted,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** Of a job whose code is a commit of a repository: what was asked for, and which commit that was at the submit. */
export function useCommit(job: JobView): { url: string; ref: string; commit: string | null } | null {
  const asked = codeOf(job.spec);
  const isSettled = asked?.kind === "git" && isCommit(asked.ref);
  const { data: whole } = useWholeSpec(job, asked?.kind === "git" && !isSettled);
  if (asked?.kind !== "git") return null;
  const used = isSettled ? asked : whole === undefined ? null : codeOf(whole);
  const commit = used?.kind === "git" && isCommit(used.ref) ? used.ref : null;
  return { url: asked.url, ref: asked.ref, commit };
}

export function useCheckpoints(job: JobView) {
  const ended = hasEnded(job);
  return usePolled<CheckpointView[]>({
    key: ["job", job.id, "checkpoints", ended],
    fetch: async (signal) => {
      const { data } = await listJobCheckpoints({ path: { reference: job.id }, signal, throwOnError: true });
      return { data: data.items };
    },
    seconds: 5,
    isFinal: () => ended,
    // A script keeps its own.
    enabled: job.kind === "train",
    keepPrevious: true,
  });
}

/** Steps between two points of a job's series, as its spec says; 1 where it does not. */
function stepsPerPoint({ spec: { train } }: JobView): number {
  const every = typeof train === "object" && train !== null && "log_every_steps" in train ? train.log_every_steps : 1;
  return typeof every === "number" && every >= 1 ? every : 1;
}

/** How long the parts of the newest steps took. */
export function useStepTimes(job: JobView) {
  const ended = hasEnded(job);
  const from = Math.max(0, (job.progress?.step ?? 0) - NEWEST_STEPS * stepsPerPoint(job) + 1);
  return usePolled<SeriesView[]>({
    key: ["job", job.id, "metrics", "time", ended],
    fetch: async (signal) => {
      const query = { names: SERIES, from_step: from, max_points: 2 * NEWEST_STEPS };
      const { data } = await getJobMetrics({ path: { reference: job.id }, query, signal, throwOnError: true });
      return { data: data.series };
    },
    seconds: 5,
    isFinal: () => ended,
    enabled: job.kind === "train",
    keepPrevious: true,
  });
}
