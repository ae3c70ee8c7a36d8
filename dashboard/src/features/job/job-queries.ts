/**
 * What the parts of a job's page ask for beside the job itself, its curves and its new events, which come together
 * (`api/live.ts`). All is asked once more when the job ends, and then no more.
 */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import {
  type AttemptView,
  type CheckpointView,
  type EventView,
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
import { addOlder, type Told, toldOf, useFollowedJob, useTold } from "@/api/live";
import { usePolled } from "@/api/polling";
import { hasEnded } from "@/lib/ended";
import { codeOf, isCommit } from "./job-code";
import { NEWEST_STEPS, SERIES } from "./time-shares";

const EVENTS_PER_PAGE = 500;
/** Pages of older events in one poll: a long story is read over several of them, which follow each other closely. */
const PAGES_AT_ONCE = 10;
const READING_ON_SECONDS = 0.1;
const CHECKPOINT_SECONDS = 20;
const FILES_SECONDS = 15;
const STEP_TIME_SECONDS = 30;

export const useJob = useFollowedJob;

/** Of a job that waits. */
export function useWhy(job: JobView) {
  return usePolled<WhyView>({
    key: ["job", job.id, "why"],
    fetch: (signal) => getWhy({ path: { reference: job.id }, signal, throwOnError: true }),
    seconds: 5,
  });
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
 * The newest come with the job itself, and those before them follow.
 */
export function useJobEvents(job: JobView, least = Number.POSITIVE_INFINITY): JobEvents {
  const queries = useQueryClient();
  const [asked, setAsked] = useState(0);
  const wanted = Math.max(least, asked);
  const isShort = (told: Told | undefined): told is Told & { older: string } =>
    told !== undefined && told.older !== null && told.events.length < wanted;
  const told = useTold(job.id);
  const { error, isFetching, refetch } = usePolled<string | null>({
    key: ["job", job.id, "events", wanted],
    fetch: async (signal) => {
      for (let pages = 0; pages < PAGES_AT_ONCE; pages += 1) {
        const known = toldOf(queries, job.id);
        if (!isShort(known)) break;
        const query = { order: "newest", cursor: Number(known.older), limit: EVENTS_PER_PAGE } as const;
        const { data } = await listJobEvents({ path: { reference: job.id }, query, signal, throwOnError: true });
        addOlder(queries, job.id, known.older, data);
      }
      return { data: toldOf(queries, job.id)?.older ?? null };
    },
    seconds: READING_ON_SECONDS,
    isFinal: () => !isShort(toldOf(queries, job.id)),
    enabled: isShort(told),
  });
  return {
    events: told?.events,
    isWhole: told?.older === null,
    isReading: isFetching && isShort(told),
    error,
    readAgain: () => void refetch(),
    readOlder: () => setAsked((told?.events.length ?? 0) + EVENTS_PER_PAGE * PAGES_AT_ONCE),
  };
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
