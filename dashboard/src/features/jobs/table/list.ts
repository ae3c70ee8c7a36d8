/** What the cells of the list know beside their own job. */
import { createContext, useContext } from "react";
import type { SeriesView } from "@/api/generated";
import type { JobsView } from "../view";

export interface ListParts {
  view: JobsView;
  /** Main series by job. */
  series: ReadonlyMap<string, SeriesView>;
  /** Names of the listed jobs by id, for reasons that name another job. */
  names: ReadonlyMap<string, string>;
  /** The main metric of all jobs; null if they differ. */
  main: string | null;
  /** True if labels have a column of their own. */
  hasLabels: boolean;
}

const List = createContext<ListParts | null>(null);
export const ListProvider = List.Provider;

export function useList(): ListParts {
  const list = useContext(List);
  if (list === null) throw new Error("useList needs a ListProvider around it");
  return list;
}
