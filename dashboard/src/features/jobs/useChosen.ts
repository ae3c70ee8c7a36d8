/**
 * The selected jobs, each of which is a row on the screen: no action reaches a job that is not shown.
 *
 * Another page, another filter or another order begins without a selection. A job that leaves the list leaves the
 * selection, and is not selected when it comes back.
 */
import { useCallback, useState } from "react";
import type { JobView } from "@/api/generated";
import type { JobsView } from "./view";

export interface Chosen {
  chosen: ReadonlyMap<string, JobView>;
  choose: (jobs: readonly JobView[], isChosen: boolean) => void;
  clear: () => void;
}

const NONE: ReadonlySet<string> = new Set();

/** `isOld` as long as `visible` are the rows of another view. */
export function useChosen(view: JobsView, visible: readonly JobView[], isOld: boolean): Chosen {
  const place = JSON.stringify(view);
  const [kept, setKept] = useState({ place, ids: NONE });
  const rows = isOld || kept.place !== place ? [] : visible.filter(({ id }) => kept.ids.has(id));
  if (kept.place !== place || rows.length < kept.ids.size) {
    setKept({ place, ids: new Set(rows.map(({ id }) => id)) });
  }
  // The same function as long as nothing else is shown: rows that did not change are not drawn again.
  const choose = useCallback((jobs: readonly JobView[], isChosen: boolean) => {
    setKept((before) => {
      const ids = new Set(before.ids);
      for (const { id } of jobs) {
        if (isChosen) ids.add(id);
        else ids.delete(id);
      }
      return { place: before.place, ids };
    });
  }, []);
  return {
    chosen: new Map(rows.map((job) => [job.id, job])),
    choose,
    clear: () => setKept({ place, ids: NONE }),
  };
}
