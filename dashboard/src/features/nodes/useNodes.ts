/** Nodes, who is on them, and how much of each device is used: one request each, however many devices there are. */
import { getSeries, type JobView, listJobs, listNodes, type NodeView, type SeriesView } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { seriesAsked } from "./measured";

/** What one answer may hold: jobs, and points of all of them together. */
const JOBS_MAX = 50;
const POINTS_MAX = 200_000;
/** So that an address stays shorter than what proxies take. */
const NAMES_MAX = 100;
/** Enough to say since when a device is idle; less where there are many series. */
const POINTS_WANTED = 120;

export function useNodes() {
  return usePolled({ key: ["nodes"], fetch: (signal) => listNodes({ signal, throwOnError: true }), seconds: 5 });
}

/** Jobs that may hold devices, by id. */
export function useHolders(): ReadonlyMap<string, JobView> {
  const { data } = usePolled({
    key: ["jobs", "live"],
    fetch: (signal) => listJobs({ query: { state: ["running", "starting"], limit: 500 }, signal, throwOnError: true }),
    seconds: 5,
  });
  return new Map((data?.items ?? []).map((job) => [job.id, job]));
}

/** What the holders' agents measured, by job. */
export function useMeasured(
  nodes: readonly NodeView[],
  holders: ReadonlyMap<string, JobView>,
): ReadonlyMap<string, readonly SeriesView[]> {
  const { jobs, names } = seriesAsked(nodes, holders);
  const { data } = usePolled({
    key: ["series", "system", jobs, names],
    fetch: (signal) => inParts(jobs, names, signal),
    seconds: 10,
    enabled: jobs.length > 0,
    keepPrevious: true,
  });
  return data ?? new Map();
}

async function inParts(jobs: string[], names: string[], signal: AbortSignal) {
  const parts = pieces(jobs, JOBS_MAX).flatMap((someJobs) =>
    pieces(names, NAMES_MAX).map((someNames) => {
      const points = Math.floor(POINTS_MAX / (someJobs.length * someNames.length));
      const query = { jobs: someJobs, names: someNames, max_points: Math.min(POINTS_WANTED, points) };
      return getSeries({ query, signal, throwOnError: true });
    }),
  );
  const found = new Map<string, SeriesView[]>();
  for (const { data } of await Promise.all(parts)) {
    for (const { job_id, series } of data.jobs) found.set(job_id, [...(found.get(job_id) ?? []), ...series]);
  }
  return { data: found };
}

function pieces<T>(all: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, place) =>
    all.slice(place * size, (place + 1) * size),
  );
}
