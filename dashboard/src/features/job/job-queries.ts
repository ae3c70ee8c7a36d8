/** What the parts of a job's page ask for. All is asked once more when the job ends, and then no more. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import {
  type AttemptView,
  type CheckpointView,
  type EventView,
  getJob,
  getJobMetrics,
  getJobSpec,
  getWhy,
  type JobView,
  type KeptFilesPage,
  listJobAttempts,
  listJobCheckpoints,
  listJobEvents,
  listJobFiles,
  type SeriesView,
  type WhyView,
} from "@/api/generated";
import { usePolled } from "@/api/polling";
import { hasEnded } from "@/lib/ended";
import { codeOf, isCommit } from "./job-code";
import { NEWEST_STEPS, SERIES } from "./time-shares";

const EVENTS_PER_PAGE = 500;
/** Pages of older events in one poll: a long story is read over several of them, which follow each other closely. */
const PAGES_AT_ONCE = 10;
const READING_ON_SECONDS = 0.1;
/** What changes the state of a job also makes a new version of it, and is then asked for at once; the rest can wait. */
const EVENT_SECONDS = 15;
const CHECKPOINT_SECONDS = 20;
const FILES_SECONDS = 15;
const STEP_TIME_SECONDS = 20;

export function useJob(reference: string) {
  return usePolled<JobView>({
    key: ["job", reference],
    fetch: (signal) => getJob({ path: { reference }, signal, throwOnError: true }),
    seconds: 3,
    isFinal: hasEnded,
  });
}

/** Of a job that waits. */
export function useWhy(job: JobView) {
  return usePolled<WhyView>({
    key: ["job", job.id, "why"],
    fetch: (signal) => getWhy({ path: { reference: job.id }, signal, throwOnError: true }),
    seconds: 5,
  });
}

interface Story {
  /** Oldest first, and without a gap. */
  events: readonly EventView[];
  /** From where older ones are read; null where the first of all is known. */
  older: string | null;
  /** So many somebody asked for. */
  wanted: number;
}

export interface JobEvents {
  /** Oldest first. */
  events: readonly EventView[] | undefined;
  /** False while older ones are not known. */
  isWhole: boolean;
  /** Older ones are on their way. */
  isReading: boolean;
  error: Error | null;
  readAgain: () => void;
  readOlder: () => void;
}

/**
 * The events of a job from the newest back: at least `least` of them, and older ones when asked for.
 *
 * The newest are there with the first answer, and those before them follow. From then on only what is new is asked for.
 */
export function useJobEvents(job: JobView, least = Number.POSITIVE_INFINITY): JobEvents {
  const queries = useQueryClient();
  const ended = hasEnded(job);
  const key = ["job", job.id, "events", ended];
  const isReading = ({ events, older, wanted }: Story) => older !== null && events.length < Math.max(least, wanted);
  const before = queries.getQueryData<Story>(key);
  const { data, error, isFetching, refetch } = usePolled<Story>({
    key,
    fetch: async (signal) => {
      // What was read while the job ran is not read again because it ended.
      const known =
        queries.getQueryData<Story>(key) ?? queries.getQueryData<Story>(["job", job.id, "events", false]) ?? null;
      if (known === null) return { data: await newestEvents(job.id, 0, signal) };
      let story = await withNewer(job.id, known, signal);
      for (let asked = 0; asked < PAGES_AT_ONCE && isReading(story); asked += 1) {
        story = await withOlder(job.id, story, signal);
      }
      return { data: story };
    },
    seconds: before !== undefined && isReading(before) ? READING_ON_SECONDS : EVENT_SECONDS,
    isFinal: (story) => ended && !isReading(story),
    keepPrevious: true,
  });
  const { version } = job;
  const seen = useRef(version);
  useEffect(() => {
    if (seen.current === version) return;
    seen.current = version;
    void refetch();
  }, [version, refetch]);
  return {
    events: data?.events,
    isWhole: data?.older === null,
    isReading: isFetching && data !== undefined && isReading(data),
    error,
    readAgain: () => void refetch(),
    readOlder: () => {
      const more = EVENTS_PER_PAGE * PAGES_AT_ONCE;
      queries.setQueryData<Story>(key, (story) => story && { ...story, wanted: story.events.length + more });
      // Also where the pace is paused: somebody asked.
      void refetch();
    },
  };
}

async function eventsPage(
  reference: string,
  order: "newest" | "oldest",
  cursor: number | undefined,
  signal: AbortSignal,
) {
  const query = { order, cursor, limit: EVENTS_PER_PAGE };
  return (await listJobEvents({ path: { reference }, query, signal, throwOnError: true })).data;
}

async function newestEvents(reference: string, wanted: number, signal: AbortSignal): Promise<Story> {
  const { items, next_cursor } = await eventsPage(reference, "newest", undefined, signal);
  return { events: items.toReversed(), older: next_cursor ?? null, wanted };
}

/** Whoever was away for more than a page of events begins at the newest again, which would otherwise be seen last. */
async function withNewer(reference: string, known: Story, signal: AbortSignal): Promise<Story> {
  const { items, next_cursor } = await eventsPage(reference, "oldest", known.events.at(-1)?.id, signal);
  if (next_cursor != null) return newestEvents(reference, known.wanted, signal);
  return items.length === 0 ? known : { ...known, events: [...known.events, ...items] };
}

async function withOlder(reference: string, known: Story, signal: AbortSignal): Promise<Story> {
  const { items, next_cursor } = await eventsPage(reference, "newest", Number(known.older), signal);
  return { ...known, events: [...items.toReversed(), ...known.events], older: next_cursor ?? null };
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
    seconds: CHECKPOINT_SECONDS,
    isFinal: () => ended,
    // A script keeps its own.
    enabled: job.kind === "train",
    keepPrevious: true,
  });
}

/** The first `limit` kept files, by path; of those that match, if there is a pattern. */
export function useFiles(job: JobView, pattern: string | undefined, limit: number) {
  const ended = hasEnded(job);
  return usePolled<KeptFilesPage>({
    key: ["job", job.id, "files", ended, pattern, limit],
    fetch: (signal) => {
      const query = { limit, ...(pattern === undefined ? {} : { match: [pattern] }) };
      return listJobFiles({ path: { reference: job.id }, query, signal, throwOnError: true });
    },
    seconds: FILES_SECONDS,
    isFinal: () => ended,
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
    seconds: STEP_TIME_SECONDS,
    isFinal: () => ended,
    enabled: job.kind === "train",
    keepPrevious: true,
  });
}
