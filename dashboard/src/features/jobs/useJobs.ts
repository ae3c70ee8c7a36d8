/** What the list asks the service for: one page of jobs, and the main series of the jobs on it. */
import { useQueryClient } from "@tanstack/react-query";
import { getSeries, type JobPage, type JobView, listJobs, type SeriesView } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { hasEnded } from "@/lib/ended";
import { asQuery, type JobsView, PAGE_SIZE, sortOf } from "./view";

/** Of one sparkline; more would be finer than its pixels. */
const SPARK_POINTS = 60;
const LIST_SECONDS = 10;
const SPARK_SECONDS = 10;
/** The last points of a job are stored shortly after its end. */
const LATE_POINTS_MS = 10_000;
/** Different names of main series on one page: 50 jobs of each stay within what one answer may hold. */
const MAIN_NAMES_MAX = 20;

export function useJobs(view: JobsView, enabled: boolean) {
  return usePolled<JobPage>({
    key: ["jobs", view],
    fetch: (signal) => listJobs({ query: asQuery(view), signal, throwOnError: true }),
    seconds: LIST_SECONDS,
    enabled,
    keepPrevious: true,
  });
}

/** The main series of each of these jobs that has one, by the job's id: of those that run again and again, of others once. */
export function useMainSeries(jobs: readonly JobView[]): ReadonlyMap<string, SeriesView> {
  const wanted = new Map<string, string>();
  for (const job of jobs) {
    const name = job.progress?.main;
    if (name) wanted.set(job.id, name);
  }
  const isDone = (job: JobView) =>
    hasEnded(job) && Date.now() - Date.parse(job.finished_at ?? job.created_at) > LATE_POINTS_MS;
  const [done, running] = [true, false].map((which) =>
    jobs.filter((job) => wanted.has(job.id) && isDone(job) === which).map(({ id }) => id),
  ) as [string[], string[]];
  const namesOf = (ids: readonly string[]) =>
    [...new Set(ids.map((id) => wanted.get(id) as string))].sort().slice(0, MAIN_NAMES_MAX);
  return new Map(
    [...useMainSeriesOf(running, namesOf, false), ...useMainSeriesOf(done, namesOf, true)].flatMap(([id, series]) => {
      const main = series.find((one) => one.name === wanted.get(id));
      return main === undefined ? [] : [[id, main]];
    }),
  );
}

type SeriesOfJobs = ReadonlyMap<string, readonly SeriesView[]>;

/** Series of these jobs. If they are final, only jobs that no former answer has are asked for. */
function useMainSeriesOf(
  ids: readonly string[],
  namesOf: (ids: readonly string[]) => string[],
  isFinal: boolean,
): SeriesOfJobs {
  const queries = useQueryClient();
  const keyOf = (id: string) => ["series", "main", id, ...namesOf([id])];
  const { data } = usePolled<SeriesOfJobs>({
    key: ["series", "mains", isFinal, ids, namesOf(ids)],
    fetch: async (signal) => {
      const known = new Map(ids.map((id) => [id, queries.getQueryData<SeriesView[]>(keyOf(id))]));
      const unknown = ids.filter((id) => !isFinal || known.get(id) === undefined);
      if (unknown.length > 0) {
        const query = { jobs: unknown, names: namesOf(unknown), max_points: SPARK_POINTS };
        for (const { job_id, series } of (await getSeries({ query, signal, throwOnError: true })).data.jobs) {
          known.set(job_id, series);
          if (isFinal) queries.setQueryData(keyOf(job_id), series);
        }
      }
      return { data: new Map([...known].map(([id, series]) => [id, series ?? []])) };
    },
    seconds: SPARK_SECONDS,
    isFinal: () => isFinal,
    enabled: ids.length > 0,
    keepPrevious: true,
  });
  return data ?? new Map();
}

/**
 * A way to the view of the page before that which begins with the job `first`.
 *
 * The service's cursors only lead on. Asked in the other order from `first`, the job behind a whole page is the one
 * that the page before begins after; where there is no such job, that page is the first one.
 */
export function usePageBefore(): (view: JobsView, first: string) => Promise<JobsView> {
  const queries = useQueryClient();
  return async (view, first) => {
    const sort = sortOf(view.order === "oldest" ? undefined : "oldest");
    const query = { ...asQuery(view), sort, cursor: first, limit: PAGE_SIZE + 1 };
    const page = await queries.fetchQuery({
      queryKey: ["jobs", "before", view, first],
      queryFn: async ({ signal }) => (await listJobs({ query, signal, throwOnError: true })).data,
    });
    const { cursor: _, ...filters } = view;
    const begin = page.items[PAGE_SIZE];
    return begin === undefined ? filters : { ...filters, cursor: begin.id };
  };
}
