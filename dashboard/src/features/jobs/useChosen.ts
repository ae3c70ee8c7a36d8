/**
 * The selected jobs: only those that the list with its filters shows, so that no hidden job is ever acted on.
 *
 * A selection holds over the pages of one list. Under other filters it holds for the rows that these show too, and a job
 * that leaves the list, because it does not match any more, leaves the selection.
 */
import { useCallback, useEffect, useState } from "react";
import type { JobView } from "@/api/generated";
import type { JobsView } from "./view";

interface Kept {
  job: JobView;
  /** The list in which it was last shown, and the page of it. */
  list: string;
  page: string;
}

export interface Chosen {
  chosen: ReadonlyMap<string, JobView>;
  /** How many of them are on other pages of the list. */
  elsewhere: number;
  choose: (jobs: readonly JobView[], isChosen: boolean) => void;
  clear: () => void;
}

/** `isOld` as long as `visible` is what another view shows. */
export function useChosen(view: JobsView, visible: readonly JobView[], isOld: boolean): Chosen {
  const [kept, setKept] = useState<ReadonlyMap<string, Kept>>(new Map());
  const { cursor: page = "", order: _, ...filters } = view;
  const list = JSON.stringify(filters);
  const fresh = new Map(isOld ? [] : visible.map((job) => [job.id, job]));
  const chosen = new Map<string, JobView>();
  let elsewhere = 0;
  for (const [id, { job, ...place }] of kept) {
    const seen = fresh.get(id);
    const isElsewhere = place.list === list && (place.page !== page || isOld);
    if (seen === undefined && !isElsewhere) continue;
    chosen.set(id, seen ?? job);
    if (seen === undefined) elsewhere += 1;
  }
  // What is shown here belongs here from now on, also when another page of this list is opened.
  const moved = [...kept].some(([id, place]) => fresh.has(id) && (place.list !== list || place.page !== page));
  // biome-ignore lint/correctness/useExhaustiveDependencies: by what has moved; `fresh` is another map on each render
  useEffect(() => {
    if (!moved) return;
    setKept((before) => {
      const next = new Map(before);
      for (const [id, job] of fresh) if (next.has(id)) next.set(id, { job, list, page });
      return next;
    });
  }, [moved, list, page]);
  // The same function as long as the list is: rows that did not change are not drawn again.
  const choose = useCallback(
    (jobs: readonly JobView[], isChosen: boolean) => {
      setKept((before) => {
        const next = new Map(before);
        for (const job of jobs) {
          if (isChosen) next.set(job.id, { job, list, page });
          else next.delete(job.id);
        }
        return next;
      });
    },
    [list, page],
  );
  return { chosen, elsewhere, choose, clear: () => setKept(new Map()) };
}
