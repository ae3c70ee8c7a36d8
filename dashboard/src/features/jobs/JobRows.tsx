/** The rows of the list with their selection and their keys, as a table or in two lines each, and what is below them. */
import { useMediaQuery } from "@mantine/hooks";
import { useMemo } from "react";
import type { JobPage, ListedJob } from "@/api/generated";
import { asList } from "@/lib/listed";
import { Foot } from "./Foot";
import classes from "./JobsPage.module.css";
import { useSelection } from "./selection/useSelection";
import { columnsOf, mainOf, movedTo, NAME } from "./table/columns";
import { type RowsOfGroup, withGroup } from "./table/groups";
import { JobCards } from "./table/JobCards";
import { JobTable } from "./table/JobTable";
import { ListProvider } from "./table/list";
import { useJobTable } from "./table/useJobTable";
import { useRowCursor } from "./table/useRowCursor";
import { useMainSeries } from "./useJobs";
import { useSame } from "./useSame";
import { type JobsView, placeOf, seen } from "./view";

/** Narrower windows have rows of two lines. */
const NARROW = "(max-width: 700px)";
const NONE: readonly ListedJob[] = [];

interface JobRowsProps {
  view: JobsView;
  page: JobPage;
  jobs: readonly ListedJob[];
  /** Columns. */
  ids: readonly string[];
  groups: readonly RowsOfGroup[] | null;
  /** True as long as these are the jobs of another view. */
  isOld: boolean;
  go: (view: JobsView) => void;
}

export function JobRows({ view, page, jobs, ids, groups, isOld, go }: JobRowsProps) {
  const isNarrow = useMediaQuery(NARROW, false, { getInitialValueInEffect: false }) ?? false;
  const selection = useSelection(placeOf(view), jobs, isOld);
  const columns = useSame([NAME, ...columnsOf(ids, jobs)]);
  const table = useJobTable({ jobs, columns, view, selection, go });
  const cursor = useRowCursor(jobs, selection);
  const series = useMainSeries(ids.includes("curve") && !isNarrow ? jobs : NONE);
  const main = mainOf(jobs);
  const hasLabels = ids.includes("labels");
  const names = useMemo(() => new Map(jobs.map(({ id, name }) => [id, name])), [jobs]);
  const parts = useMemo(() => ({ view, series, names, main, hasLabels }), [view, series, names, main, hasLabels]);
  const Shown = isNarrow ? JobCards : JobTable;
  return (
    <ListProvider value={parts}>
      <div className={isOld ? classes.old : classes.list}>
        <Shown
          table={table}
          columns={columns}
          groups={groups}
          cursor={cursor}
          toggleGroup={(value) => go(withGroup(view, value))}
          move={(id, place) => go(seen(view, { columns: asList(movedTo(ids, id, place)) }))}
        />
        <Foot view={view} page={page} selection={selection} />
      </div>
    </ListProvider>
  );
}
