/** What the list asks the service for: one page of jobs, and one answer with the losses of all jobs on it. */
import { useQueryClient } from "@tanstack/react-query";
import { getSeries, type JobView, listJobs, type PageJobView, type SeriesView } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { hasEnded } from "@/lib/ended";
import { lossName } from "./sparkline";
import { asQuery, type JobsView, PAGE_SIZE } from "./view";

/** Of one sparkline; more would be finer than its pixels. */
const SPARK_POINTS = 60;
/** Different names of losses on one page: 50 jobs of each stay within what one answer may hold. */
const LOSS_NAMES_MAX = 20;

export function useJobs(view: JobsView) {
  return usePolled<PageJobView>({
    key: ["jobs", view],
    fetch: (signal) => listJobs({ query: asQuery(view), signal, throwOnError: true }),
    seconds: 5,
    keepPrevious: true,
  });
}

/** The loss of each of these jobs that has one, by the job's id. */
export function useLosses(jobs: readonly JobView[]): ReadonlyMap<string, SeriesView> {
  const wanted = new Map<string, string>();
  for (const job of jobs) {
    const name = lossName(Object.keys(job.progress?.latest ?? {}));
    if (name !== null) wanted.set(job.id, name);
  }
  const ids = [...wanted.keys()];
  const names = [...new Set(wanted.values())].sort().slice(0, LOSS_NAMES_MAX);
  const { data } = usePolled({
    key: ["series", "losses", ids, names],
    fetch: (signal) => getSeries({ query: { jobs: ids, names, max_points: SPARK_POINTS }, signal, throwOnError: true }),
    seconds: 5,
    isFinal: () => jobs.every(hasEnded),
    enabled: ids.length > 0,
    keepPrevious: true,
  });
  const found = new Map<string, SeriesView>();
  for (const { job_id, series } of data?.jobs ?? []) {
    const loss = series.find((one) => one.name === wanted.get(job_id));
    if (loss !== undefined) found.set(job_id, loss);
  }
  return found;
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
    const order = view.order === "oldest" ? "newest" : "oldest";
    const query = { ...asQuery(view), order, cursor: first, limit: PAGE_SIZE + 1 } as const;
    const page = await queries.fetchQuery({
      queryKey: ["jobs", "before", view, first],
      queryFn: async ({ signal }) => (await listJobs({ query, signal, throwOnError: true })).data,
    });
    const { cursor: _, ...filters } = view;
    const begin = page.items[PAGE_SIZE];
    return begin === undefined ? filters : { ...filters, cursor: begin.id };
  };
}
