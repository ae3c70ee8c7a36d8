/** What the parts of a job's page ask for. All is asked once more when the job ends, and then no more. */
import { useQueryClient } from "@tanstack/react-query";
import {
  type CheckpointView,
  type EventView,
  getJob,
  getJobMetrics,
  type JobView,
  listJobCheckpoints,
  listJobEvents,
  type PageEventView,
  type SeriesView,
} from "@/api/generated";
import { usePolled } from "@/api/polling";
import { NEWEST_STEPS, SERIES } from "./time-shares";

const EVENTS_PER_PAGE = 500;
/** Pages of one poll: a long story is read over several of them. */
const PAGES_AT_ONCE = 10;

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
  /** Pages by the cursor that they were asked for with; the last one is asked for again, because it grows. */
  pages: { cursor: number; events: EventView[] }[];
  isWhole: boolean;
}

async function eventsPage(reference: string, cursor: number, signal: AbortSignal): Promise<PageEventView> {
  const query = { cursor, limit: EVENTS_PER_PAGE };
  return (await listJobEvents({ path: { reference }, query, signal, throwOnError: true })).data;
}

/** All events so far, oldest first; only what is new is asked for. */
export function useJobEvents(job: JobView): { events: EventView[] | undefined; isWhole: boolean; error: Error | null } {
  const queries = useQueryClient();
  const ended = hasEnded(job);
  const key = ["job", job.id, "events", ended];
  const { data, error } = usePolled<Story>({
    key,
    fetch: async (signal) => {
      const known = queries.getQueryData<Story>(key) ?? { pages: [], isWhole: false };
      const pages = known.pages.slice(0, -1);
      let cursor: number | null = known.pages.at(-1)?.cursor ?? 0;
      for (let asked = 0; cursor !== null && asked < PAGES_AT_ONCE; asked += 1) {
        const { items, next_cursor: next } = await eventsPage(job.id, cursor, signal);
        pages.push({ cursor, events: items });
        cursor = next == null ? null : Number(next);
      }
      return { data: { pages, isWhole: cursor === null } };
    },
    seconds: 2,
    isFinal: ({ isWhole }) => ended && isWhole,
    keepPrevious: true,
  });
  return { events: data?.pages.flatMap(({ events }) => events), isWhole: data?.isWhole ?? false, error };
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
