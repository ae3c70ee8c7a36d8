/**
 * What the fields of the filters suggest: owners and nodes of the jobs that this browser was told of, and all
 * nodes once somebody goes to that field. Only suggestions: what was not seen can be typed.
 */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { type JobPage, type JobView, listNodes } from "@/api/generated";
import { ownerOf } from "@/lib/owner";

export interface Suggestions {
  owners: readonly string[];
  nodes: readonly string[];
  askForNodes: () => void;
}

/** Nodes come and go by the day. */
const NODES_FRESH_MS = 60_000;

export function useSuggestions(jobs: readonly JobView[]): Suggestions {
  const queries = useQueryClient();
  const [isAsked, setIsAsked] = useState(false);
  const { data: nodes } = useQuery({
    queryKey: ["nodes"],
    queryFn: async ({ signal }) => (await listNodes({ signal, throwOnError: true })).data,
    enabled: isAsked,
    staleTime: NODES_FRESH_MS,
  });
  // The lists before this one, too: on a list of one owner's jobs the other owners are what one wants next.
  const lists = queries.getQueriesData<JobPage>({ queryKey: ["jobs"] });
  const seen = [...jobs, ...lists.flatMap(([, page]) => page?.items ?? [])];
  return {
    owners: sorted(seen.flatMap((job) => ownerOf(job) ?? [])),
    nodes: sorted([
      ...(nodes?.items ?? []).map(({ name }) => name),
      ...seen.flatMap(({ attempt }) => attempt?.nodes ?? []),
    ]),
    askForNodes: () => setIsAsked(true),
  };
}

/** Each once. */
function sorted(names: readonly string[]): string[] {
  return [...new Set(names)].sort();
}
