/** The name of the job that a wait reason speaks of: reasons have ids, and a page of one job has seen no other. */
import { useQuery } from "@tanstack/react-query";
import { getJob } from "@/api/generated";
import { waitParts } from "@/lib/waiting";

export function useNameIn(reason: string): (id: string) => string | undefined {
  const named = waitParts(reason, () => undefined).find((part) => typeof part !== "string");
  const id = typeof named === "object" ? named.job : "";
  const { data } = useQuery({
    queryKey: ["job", id],
    queryFn: async ({ signal }) => (await getJob({ path: { reference: id }, signal, throwOnError: true })).data,
    enabled: id !== "",
    staleTime: Number.POSITIVE_INFINITY,
  });
  return (asked) => (asked === data?.id ? data.name : undefined);
}
