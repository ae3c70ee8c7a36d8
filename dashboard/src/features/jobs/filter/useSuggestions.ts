/**
 * Tokens that the filter suggests: values of the jobs that this browser has read, and all nodes once the field has the
 * focus. Only suggestions: what was not read can be typed.
 */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { type JobPage, type JobView, listNodes } from "@/api/generated";
import { ownerOf } from "@/lib/owner";
import { tokenFor } from "./tokens";

export interface Suggestions {
  tokens: readonly string[];
  askForNodes: () => void;
}

/** Nodes come and go by the day. */
const NODES_FRESH_MS = 60_000;
/** What no job has to be read for. */
const ALWAYS = ["starred:yes", "age<7d", "gpus>1", "attempts>1", "duration>1h", "kind:script", "kind:train"];

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
  const named = [
    ...(nodes?.items ?? []).map(({ name }) => name),
    ...seen.flatMap(({ attempt }) => attempt?.nodes ?? []),
  ];
  return {
    tokens: [
      ...sorted(seen.map(ownerOf)).map((owner) => tokenFor("owner", owner)),
      ...sorted(seen.map(({ project }) => project)).map((project) => tokenFor("project", project)),
      ...sorted(named).map((node) => tokenFor("node", node)),
      ...sorted(
        seen.flatMap(({ labels }) => Object.entries(labels).map(([key, value]) => tokenFor(`label:${key}`, value))),
      ),
      ...ALWAYS,
    ],
    askForNodes: () => setIsAsked(true),
  };
}

/** Each once. */
function sorted(names: readonly (string | null)[]): string[] {
  return [...new Set(names)].filter((name) => name !== null).sort();
}
