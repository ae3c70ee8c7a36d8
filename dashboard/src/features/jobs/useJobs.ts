/** What the list asks the service for: a page of jobs, those of open groups, and the main series of the jobs shown. */
import { useQueries, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { getSeries, type JobPage, type JobView, type ListedJob, listJobs, type SeriesView } from "@/api/generated";
import { usePace } from "@/api/pace";
import { type Polled, polled, usePolled } from "@/api/polling";
import { hasEnded } from "@/lib/ended";
import { tokenFor, withToken } from "./filter/tokens";
import { asQuery, type JobsView, placeOf } from "./view";

/** Of one sparkline; more would be finer than its pixels. */
const SPARK_POINTS = 60;
const LIST_SECONDS = 10;
/** The width of one of its points: of a run of twenty minutes or more, a pixel does not change sooner. */
const SPARK_SECONDS = 20;
/** The last points of a job are stored shortly after its end. */
const LATE_POINTS_MS = 10_000;
/** Different names of main series on one page: 50 jobs of each stay within what one answer may hold. */
const MAIN_NAMES_MAX = 20;
/** Jobs of one request, and of a selection of all jobs that match a filter. */
const ALL_LIMIT = 200;
export const ALL_MAX = 2_000;

/** Key of the answer with the jobs of a view. */
export function jobsKey(view: JobsView, columns: readonly string[]) {
  return ["jobs", asQuery(view, columns)];
}

function listOf(view: JobsView, columns: readonly string[]): Polled<JobPage> {
  return {
    key: jobsKey(view, columns),
    fetch: (signal) => listJobs({ query: asQuery(view, columns), signal, throwOnError: true }),
    seconds: LIST_SECONDS,
    keepPrevious: true,
  };
}

/** One page of jobs with the values of `columns`. `isOld` as long as it is that of another view. */
export function useJobs(view: JobsView, columns: readonly string[], enabled: boolean) {
  const query = usePolled<JobPage>({ ...listOf(view, columns), enabled });
  const place = placeOf(view);
  const [answered, setAnswered] = useState(place);
  // Other columns of the same jobs are no other view.
  if (query.data !== undefined && !query.isPlaceholderData && answered !== place) setAnswered(place);
  return { ...query, isOld: query.isPlaceholderData && answered !== place };
}

/** The view of the jobs of one group; null for jobs without a value of a setting, which no filter names. */
export function viewOfGroup(view: JobsView, value: string | null): JobsView | null {
  const { group = "", open: _, cursor: __, ...others } = view;
  if (value !== null) return { ...others, filter: withToken(view.filter, tokenFor(group, value)) };
  if (!group.startsWith("label:")) return null;
  const token = `${tokenFor(group, "*").replace(/="\*"$/, "")}!=*`;
  return { ...others, filter: withToken(view.filter, token) };
}

/** The first jobs of each of these groups, by value. */
export function useGroups(
  view: JobsView,
  values: readonly (string | null)[],
  columns: readonly string[],
): ReadonlyMap<string | null, JobPage> {
  const pace = usePace();
  const views = values.flatMap((value) => {
    const of = viewOfGroup(view, value);
    return of === null ? [] : [{ value, of }];
  });
  const answers = useQueries({ queries: views.map(({ of }) => polled<JobPage>(listOf(of, columns), pace)) });
  return new Map(
    views.flatMap(({ value }, place) => {
      const page = answers[place]?.data;
      return page === undefined ? [] : [[value, page] as const];
    }),
  );
}

/** All jobs that match a view now, `ALL_MAX` at most. */
export async function allJobs(view: JobsView): Promise<ListedJob[]> {
  const found: ListedJob[] = [];
  let cursor: string | undefined;
  do {
    const query = {
      ...asQuery({ ...view, group: undefined, sort: undefined, cursor }, []),
      limit: ALL_LIMIT,
      totals: false,
    };
    const { data } = await listJobs({ query, throwOnError: true });
    found.push(...data.items);
    cursor = data.next_cursor ?? undefined;
  } while (cursor !== undefined && found.length < ALL_MAX);
  return found.slice(0, ALL_MAX);
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
