/** The compared jobs: one request for all of them, and then for those that have not ended. */
import { useQueries, useQueryClient } from "@tanstack/react-query";
import { Failure } from "@/api/client";
import { getJob, type JobView, listJobs } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { hasEnded } from "@/lib/ended";

const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const SECONDS = 5;

export interface Jobs {
  /** In the order of the references, each once. */
  jobs: readonly JobView[];
  /** Ids of the references that are known. */
  idOf: ReadonlyMap<string, string>;
  isPending: boolean;
  /** References of no job. */
  missing: readonly string[];
  error: Error | null;
  retry: () => void;
}

/** References are ids as a rule; names and parts of ids in an address are looked up once. */
export function useJobs(references: readonly string[]): Jobs {
  const queries = useQueryClient();
  const others = references.filter((reference) => !ID.test(reference));
  const named = useQueries({
    queries: others.map((reference) => ({
      queryKey: ["job", "named", reference],
      queryFn: async ({ signal }: { signal: AbortSignal }) =>
        (await getJob({ path: { reference }, signal, throwOnError: true })).data.id,
      staleTime: Number.POSITIVE_INFINITY,
    })),
  });
  const idOf = new Map(references.filter((reference) => ID.test(reference)).map((id) => [id, id]));
  others.forEach((reference, index) => {
    const id = named[index]?.data;
    if (id !== undefined) idOf.set(reference, id);
  });
  const isNamed = named.every(({ isPending }) => !isPending);
  const ids = [...new Set(references.flatMap((reference) => idOf.get(reference) ?? []))];
  const key = ["jobs", "compared", ids];
  const { data, error, isPending, isPlaceholderData, refetch } = usePolled<JobView[]>({
    key,
    fetch: async (signal) => {
      const known = queries.getQueryData<JobView[]>(key) ?? [];
      const open = known.filter((job) => !hasEnded(job)).map(({ id }) => id);
      const wanted = known.length === 0 ? ids : open;
      if (wanted.length === 0) return { data: known };
      const query = { filter: `id:${wanted.join(",")}`, limit: wanted.length };
      const { data: page } = await listJobs({ query, signal, throwOnError: true });
      const fresh = new Map(page.items.map((job) => [job.id, job]));
      return {
        data: ids.flatMap((id) => fresh.get(id) ?? known.find((job) => job.id === id && hasEnded(job)) ?? []),
      };
    },
    seconds: SECONDS,
    isFinal: (jobs) => jobs.every(hasEnded),
    // All at once, also where some of them are looked up by name.
    enabled: isNamed && ids.length > 0,
    keepPrevious: true,
  });
  const wanted = new Set(ids);
  const jobs = ids.length === 0 ? [] : (data ?? []).filter(({ id }) => wanted.has(id));
  const found = new Set(jobs.map(({ id }) => id));
  const unknown = others.filter((_, index) => isUnknown(named[index]?.error));
  const isAnswered = data !== undefined && !isPlaceholderData;
  return {
    jobs,
    idOf,
    isPending: references.length > 0 && (!isNamed || (ids.length > 0 && isPending)),
    missing: [
      ...unknown,
      ...references.filter((reference) => isAnswered && idOf.has(reference) && !found.has(idOf.get(reference) ?? "")),
    ],
    error:
      (data === undefined ? error : null) ?? named.find((each) => each.error && !isUnknown(each.error))?.error ?? null,
    retry: () => {
      void refetch();
      for (const each of named) if (each.error !== null) void each.refetch();
    },
  };
}

function isUnknown(error: unknown): boolean {
  return error instanceof Failure && error.status === 404;
}
