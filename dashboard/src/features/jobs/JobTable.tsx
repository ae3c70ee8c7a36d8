/** The table of jobs, with a cursor that keys move and rows that can be chosen. */
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import type { JobView, SeriesView } from "@/api/generated";
import { useKeys } from "@/app/keys";
import { Clock } from "@/components/Clock";
import { JobRow } from "./JobRow";
import classes from "./JobTable.module.css";
import type { JobsView } from "./view";

interface Props {
  jobs: readonly JobView[];
  series: ReadonlyMap<string, SeriesView>;
  view: JobsView;
  chosen: ReadonlyMap<string, JobView>;
  choose: (jobs: readonly JobView[], isChosen: boolean) => void;
}

export function JobTable({ jobs, series, view, chosen, choose }: Props) {
  const names = useMemo(() => new Map(jobs.map((job) => [job.id, job.name])), [jobs]);
  const body = useRef<HTMLTableSectionElement>(null);
  const cursor = useRowCursor(jobs, (job) => choose([job], !chosen.has(job.id)), body);
  const chosenHere = jobs.filter((job) => chosen.has(job.id)).length;
  return (
    <div className={classes.panel}>
      <table className={classes.table}>
        <caption className={classes.caption}>Jobs</caption>
        <thead>
          <tr>
            <th scope="col" className={classes.choose}>
              <input
                type="checkbox"
                aria-label="Select all jobs on this page"
                checked={chosenHere === jobs.length}
                ref={(box) => {
                  if (box !== null) box.indeterminate = chosenHere > 0 && chosenHere < jobs.length;
                }}
                onChange={(event) => choose(jobs, event.target.checked)}
              />
            </th>
            <th scope="col" className={classes.state}>
              State
            </th>
            <th scope="col" className={classes.job}>
              Job
            </th>
            <th scope="col">Progress</th>
            <th scope="col" className={classes.plan} title="ranks × samples × accumulation steps">
              Batch
            </th>
            <th scope="col" className={classes.loss}>
              Metric
            </th>
            <th scope="col" className={classes.age}>
              Submitted
            </th>
          </tr>
        </thead>
        <tbody ref={body}>
          <Clock of={["jobs", view]}>
            {jobs.map((job) => (
              <JobRow
                key={job.id}
                job={job}
                series={series.get(job.id)}
                view={view}
                isChosen={chosen.has(job.id)}
                isAtCursor={job.id === cursor}
                choose={choose}
                names={names}
              />
            ))}
          </Clock>
        </tbody>
      </table>
    </div>
  );
}

/** The id of the row that j and k move to, x chooses and Enter opens; null before the first of them. */
function useRowCursor(
  jobs: readonly JobView[],
  choose: (job: JobView) => void,
  body: { current: HTMLElement | null },
): string | null {
  const navigate = useNavigate();
  const [cursor, setCursor] = useState<string | null>(null);
  // By id: a job that is submitted meanwhile moves the rows, and not the cursor.
  const place = jobs.findIndex((job) => job.id === cursor);
  const move = (by: number) => () => {
    if (isElsewhere()) return;
    const next = place === -1 ? 0 : Math.min(jobs.length - 1, Math.max(0, place + by));
    setCursor(jobs[next]?.id ?? null);
  };
  const withRow = (act: (job: JobView) => void) => (event: KeyboardEvent) => {
    const job = jobs[place];
    if (job === undefined || isElsewhere()) return;
    event.preventDefault();
    act(job);
  };
  const open = withRow((job) => void navigate({ to: "/jobs/$job", params: { job: job.id } }));
  const openUnlessOnControl = (event: KeyboardEvent) => {
    // A link or a button that has the focus is what Enter is for.
    const isOnControl = event.target instanceof HTMLElement && event.target.closest("a, button, summary") !== null;
    if (!isOnControl) open(event);
  };
  useKeys({ j: move(1), k: move(-1), x: withRow(choose), Enter: openUnlessOnControl });
  useEffect(() => {
    if (cursor !== null) body.current?.querySelector(`[data-row="${cursor}"]`)?.scrollIntoView({ block: "nearest" });
  }, [cursor, body]);
  return cursor;
}

/** While a dialog is open the list behind it stands still. */
function isElsewhere(): boolean {
  return document.querySelector("[role='dialog']") !== null;
}
