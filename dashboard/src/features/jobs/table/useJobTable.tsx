/** The jobs on the screen as a table: its columns, its order and its selection. The service sorts and groups. */
import {
  type ColumnDef,
  functionalUpdate,
  rowSelectionFeature,
  rowSortingFeature,
  type SortingState,
  tableFeatures,
  type Updater,
  useTable,
} from "@tanstack/react-table";
import { useMemo } from "react";
import type { ListedJob } from "@/api/generated";
import type { Selection } from "../selection/useSelection";
import { changed, type JobsView, NEWEST } from "../view";
import { Cell } from "./cells";
import type { ColumnInfo } from "./columns";

const features = tableFeatures({ rowSelectionFeature, rowSortingFeature });
export type Features = typeof features;
export type JobsTable = ReturnType<typeof useJobTable>;

interface Options {
  jobs: readonly ListedJob[];
  columns: readonly ColumnInfo[];
  view: JobsView;
  selection: Selection;
  go: (view: JobsView) => void;
}

export function useJobTable({ jobs, columns, view, selection, go }: Options) {
  const definitions = useMemo(() => columns.map(defined), [columns]);
  const sorting = useMemo(() => sortingOf(view.sort, columns), [view.sort, columns]);
  const onSortingChange = (updater: Updater<SortingState>) => {
    const [first] = functionalUpdate(updater, sorting);
    const by = columns.find(({ id }) => id === first?.id)?.sort;
    if (first !== undefined && by !== undefined) go(changed(view, { sort: `${first.desc ? "-" : ""}${by}` }));
  };
  return useTable({
    features,
    data: jobs,
    columns: definitions,
    getRowId: ({ id }) => id,
    manualSorting: true,
    enableMultiSort: false,
    enableSortingRemoval: false,
    state: { rowSelection: selection.state, sorting },
    onRowSelectionChange: selection.change,
    onSortingChange,
  });
}

/** The order of a view as that of a column on the screen; none if its column is not shown. */
export function sortingOf(sort: string | undefined, columns: readonly ColumnInfo[]): SortingState {
  const name = sort ?? NEWEST;
  const column = columns.find((each) => each.sort === name.replace(/^-/, ""));
  return column === undefined ? [] : [{ id: column.id, desc: name.startsWith("-") }];
}

function defined({ id, label, sort, isLargestFirst }: ColumnInfo): ColumnDef<Features, ListedJob> {
  return {
    id,
    // Only a column with values can be sorted by; the service has them.
    accessorFn: (job) => job.id,
    header: label,
    cell: ({ row }) => <Cell id={id} job={row.original} />,
    enableSorting: sort !== undefined,
    sortDescFirst: isLargestFirst ?? false,
  };
}
