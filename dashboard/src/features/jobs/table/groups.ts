/** Groups of the list as rows: those that are open with their jobs. */
import type { JobGroup, JobPage, ListedJob } from "@/api/generated";
import { asList, listed } from "@/lib/listed";
import { type JobsView, OPEN_MAX, seen } from "../view";

export interface RowsOfGroup {
  group: JobGroup;
  isOpen: boolean;
  /** Those that are shown; none of a group that is not open. */
  jobs: readonly ListedJob[];
  /** The list of all its jobs; null if no filter can name them. */
  view: JobsView | null;
}

/** The group of the jobs without a value, as the address keeps it. */
const NONE = "(none)";

export function openIn(view: JobsView): (string | null)[] {
  return view.group === undefined ? [] : listed(view.open).map((value) => (value === NONE ? null : value));
}

/** `view` with one group more, or less, that is open. The one that was opened first closes beyond `OPEN_MAX`. */
export function withGroup(view: JobsView, value: string | null): JobsView {
  const name = value ?? NONE;
  const open = listed(view.open);
  const next = open.includes(name) ? open.filter((each) => each !== name) : [...open, name].slice(-OPEN_MAX);
  return seen(view, { open: asList(next) });
}

export function rowsOf(
  groups: readonly JobGroup[],
  open: readonly (string | null)[],
  pages: ReadonlyMap<string | null, JobPage>,
  viewOf: (value: string | null) => JobsView | null,
): RowsOfGroup[] {
  return groups.map((group) => ({
    group,
    isOpen: open.includes(group.value),
    jobs: open.includes(group.value) ? (pages.get(group.value)?.items ?? []) : [],
    view: viewOf(group.value),
  }));
}
