/** The list in a narrow window: two lines for each job, what it is and how far. */
import { Link } from "@tanstack/react-router";
import type { Row } from "@tanstack/react-table";
import { memo } from "react";
import type { ListedJob } from "@/api/generated";
import { useClock } from "@/components/Clock";
import { StateBadge } from "@/components/StateBadge";
import { number } from "@/lib/format";
import { counted } from "@/lib/resources";
import { Left, Progress } from "./cells";
import { type ColumnInfo, valueIn } from "./columns";
import { bestOf, GroupName, GroupRest, GroupStates } from "./GroupRow";
import classes from "./JobCards.module.css";
import { ChooseAll, ChooseOne, type JobRowsProps } from "./JobTable";
import { Marks } from "./Marks";
import { Star } from "./Star";
import type { Features } from "./useJobTable";
import { gpusOf, progressWords, ranFor } from "./words";

export function JobCards({ table, columns, groups, cursor, toggleGroup }: JobRowsProps) {
  const rows = table.getRowModel().rows;
  const sorted = columns.find(({ id }) => id === table.state.sorting[0]?.id);
  const drawn = (row: Row<Features, ListedJob>) => (
    <JobCard key={row.id} row={row} sorted={sorted} isChosen={row.getIsSelected()} isAtCursor={row.id === cursor} />
  );
  return (
    <ul className={classes.list} aria-label="Jobs">
      {rows.length === 0 ? null : (
        <li className={classes.all}>
          <ChooseAll table={table} /> Select all
        </li>
      )}
      {groups === null
        ? rows.map(drawn)
        : groups.map((of) => [
            <li key={`group ${of.group.value}`} className={classes.group}>
              <GroupName {...of} toggle={() => toggleGroup(of.group.value)} />
              <span className={classes.end}>{bestOf(of)}</span>
              <GroupStates {...of} />
              <GroupRest {...of} />
            </li>,
            ...of.jobs.flatMap(({ id }) => rows.filter((row) => row.id === id).map(drawn)),
          ])}
    </ul>
  );
}

interface JobCardProps {
  row: Row<Features, ListedJob>;
  /** Column by which the list is sorted: its value is shown. */
  sorted: ColumnInfo | undefined;
  isChosen: boolean;
  isAtCursor: boolean;
}

const JobCard = memo(
  function JobCard({ row, sorted, isChosen, isAtCursor }: JobCardProps) {
    const job = row.original;
    return (
      <li
        className={classes.card}
        data-row={row.id}
        aria-current={isAtCursor ? "true" : undefined}
        data-chosen={isChosen || undefined}
      >
        <ChooseOne row={row} isChosen={isChosen} />
        <span className={classes.name}>
          <StateBadge state={job.state} isPlain>
            <span className={classes.hidden}>{job.state}</span>
          </StateBadge>
          <Link to="/jobs/$job" params={{ job: job.id }}>
            {job.name}
          </Link>
          <Star job={job} />
          <Marks job={job} />
        </span>
        <span className={classes.end}>
          <Figure job={job} sorted={sorted} />
        </span>
        <span className={classes.second}>{job.state === "running" ? <Place job={job} /> : <Progress job={job} />}</span>
        <span className={classes.left}>
          <LeftOrRan job={job} />
        </span>
      </li>
    );
  },
  (before, after) =>
    before.row.original === after.row.original &&
    before.sorted === after.sorted &&
    before.isChosen === after.isChosen &&
    before.isAtCursor === after.isAtCursor,
);

/** The value by which the list is sorted, or how far a running job is. */
function Figure({ job, sorted }: { job: ListedJob; sorted: ColumnInfo | undefined }) {
  const value = sorted === undefined ? undefined : valueIn(job, sorted.sort ?? sorted.id);
  if (value !== undefined) return typeof value === "number" ? number(value) : value;
  return job.state === "running" ? progressWords(job)?.percent : null;
}

function Place({ job }: { job: ListedJob }) {
  const gpus = gpusOf(job);
  return [gpus === "1" ? counted(1, "GPU") : `${gpus} GPUs`, ...(job.attempt?.nodes ?? []).slice(0, 1)].join(" · ");
}

function LeftOrRan({ job }: { job: ListedJob }) {
  const { now } = useClock();
  const ran = ranFor(job, now);
  if (job.state === "queued" || (job.state === "running" && job.progress?.eta_seconds != null)) {
    return <Left job={job} />;
  }
  return ran === null ? null : <span title="Duration">{ran}</span>;
}
