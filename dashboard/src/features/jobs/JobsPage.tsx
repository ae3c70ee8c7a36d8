/** All jobs: found by filters that live in the address, told apart at a glance, and acted on several at a time. */
import type { JobPage, ListedJob } from "@/api/generated";
import { Clock } from "@/components/Clock";
import { Failed } from "@/components/Failed";
import { SkeletonRows } from "@/components/SkeletonRows";
import { PageStale } from "@/components/Stale";
import { usePageTitle } from "@/components/usePageTitle";
import { number } from "@/lib/format";
import { asList, listed } from "@/lib/listed";
import { FilterBar } from "./filter/FilterBar";
import { isSameHabit, makeHabit, useHabit } from "./habits";
import { JobRows } from "./JobRows";
import classes from "./JobsPage.module.css";
import { NoJobsYet, NoneOfThese } from "./NoJobs";
import { ColumnChooser } from "./table/ColumnChooser";
import { NAME, usualIds } from "./table/columns";
import { openIn, rowsOf } from "./table/groups";
import { Unusable } from "./Unusable";
import { jobsKey, useGroups, viewOfGroup } from "./useJobs";
import { useSameItems } from "./useSame";
import { useUsableJobs } from "./useUsableJobs";
import { useView } from "./useView";
import { isFiltered, type JobsView, seen, USUAL } from "./view";

const NONE: readonly ListedJob[] = [];

export function JobsPage() {
  const { view, me, isSettled, go } = useView();
  const chosen =
    view.columns === undefined || view.columns === USUAL ? null : listed(view.columns).filter((id) => id !== NAME.id);
  const { data, error, isOld, asked, unusable, refetch } = useUsableJobs(view, chosen, isSettled);
  usePageTitle(...runningIn(data), "Jobs");
  const { groups, jobs } = useShown(view, data, asked);
  const listedJobs = data?.items ?? NONE;
  const described = jobs.length === 0 ? listedJobs : jobs;
  const ids = chosen?.filter((id) => !unusable.some(({ value }) => value === id)) ?? usualIds(described);
  const habit = useHabit();
  const show = (columns: JobsView["columns"]) => go(seen(view, { columns }));
  const isEmpty = data !== undefined && listedJobs.length === 0;
  const isFirstVisit = isEmpty && !isFiltered(view) && view.cursor === undefined;
  return (
    <div className={classes.page} data-fills-window={listedJobs.length > 0 || undefined}>
      <h1 className={classes.title}>Jobs</h1>
      <PageStale of={["jobs"]} />
      {isFirstVisit ? null : (
        <FilterBar view={view} me={me} jobs={described} totals={data?.totals ?? undefined} refused={unusable} go={go}>
          <ColumnChooser
            ids={ids}
            jobs={described}
            choose={(next) => show(asList(next))}
            reset={chosen === null ? null : () => show(undefined)}
            makeDefault={isSameHabit(view, habit) ? null : () => makeHabit(view)}
          />
        </FilterBar>
      )}
      <Unusable parts={unusable} view={view} go={go} />
      {data !== undefined || error === null || unusable.length > 0 ? null : (
        <Failed error={error} retry={() => void refetch()} />
      )}
      {data === undefined && error === null ? <SkeletonRows label="The jobs are loading" /> : null}
      {isFirstVisit ? <NoJobsYet /> : null}
      {isEmpty && !isFirstVisit ? <NoneOfThese view={view} me={me} /> : null}
      {data === undefined || isEmpty ? null : (
        <Clock of={jobsKey(view, asked)}>
          <JobRows view={view} page={data} jobs={jobs} ids={ids} groups={groups} isOld={isOld} go={go} />
        </Clock>
      )}
    </div>
  );
}

/** The jobs on the screen: those of the page, or those of the groups that are open. */
function useShown(view: JobsView, data: JobPage | undefined, asked: readonly string[]) {
  const open = openIn(view);
  const pages = useGroups(view, open, asked);
  const groups =
    view.group === undefined
      ? null
      : rowsOf(data?.totals?.groups ?? [], open, pages, (value) => viewOfGroup(view, value));
  const jobs = useSameItems(groups === null ? (data?.items ?? NONE) : groups.flatMap((group) => group.jobs));
  return { groups, jobs };
}

/** "31 running", of the whole list. */
function runningIn(data: JobPage | undefined): string[] {
  const running = data?.totals?.states.running ?? 0;
  return running === 0 ? [] : [`${number(running)} running`];
}
