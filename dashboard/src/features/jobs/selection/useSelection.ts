/**
 * The selected jobs: those of the rows on the screen, or all that match the filter.
 *
 * Another page, another filter or another order begins without a selection. A job that leaves the list leaves the
 * selection, and is not selected when it comes back: no action reaches a job that the view does not have.
 */
import { functionalUpdate, type RowSelectionState, type Updater } from "@tanstack/react-table";
import { useCallback, useMemo, useState } from "react";
import type { ListedJob } from "@/api/generated";

export interface Selection {
  /** By id, as the table takes it. */
  state: RowSelectionState;
  change: (updater: Updater<RowSelectionState>) => void;
  toggle: (id: string) => void;
  /** Those on the screen. */
  jobs: readonly ListedJob[];
  /** True if also those of other pages are selected. */
  isAll: boolean;
  selectAll: () => void;
  clear: () => void;
}

interface Kept {
  place: string;
  ids: ReadonlySet<string>;
  isAll: boolean;
}

const NONE: ReadonlySet<string> = new Set();

/** `isOld` as long as `visible` are the rows of another view than that of `place`. */
export function useSelection(place: string, visible: readonly ListedJob[], isOld: boolean): Selection {
  const [kept, setKept] = useState<Kept>({ place, ids: NONE, isAll: false });
  const isSame = kept.place === place && !isOld;
  const jobs = isSame ? visible.filter(({ id }) => kept.isAll || kept.ids.has(id)) : [];
  if (kept.place !== place || (!kept.isAll && jobs.length < kept.ids.size)) {
    setKept({ place, ids: new Set(jobs.map(({ id }) => id)), isAll: false });
  }
  const ids = jobs.map(({ id }) => id).join(",");
  // The same as long as the same rows are selected: rows that did not change are not drawn again.
  const state = useMemo(() => stateOf(ids === "" ? [] : ids.split(",")), [ids]);
  const change = useCallback(
    (updater: Updater<RowSelectionState>) => {
      setKept((before) => {
        const next = functionalUpdate(updater, before.isAll ? state : stateOf([...before.ids]));
        return { place: before.place, ids: new Set(Object.keys(next)), isAll: false };
      });
    },
    [state],
  );
  const toggle = (id: string) =>
    change(({ [id]: isChosen, ...others }) => (isChosen ? others : { ...others, [id]: true }));
  return {
    state,
    change,
    toggle,
    jobs,
    isAll: isSame && kept.isAll,
    selectAll: () => setKept({ place, ids: NONE, isAll: true }),
    clear: () => setKept({ place, ids: NONE, isAll: false }),
  };
}

function stateOf(ids: readonly string[]): RowSelectionState {
  return Object.fromEntries(ids.map((id) => [id, true as const]));
}
