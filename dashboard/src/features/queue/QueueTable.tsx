/** Jobs that wait, in one table: place, name, what each asks for, reason and expected start. */
import { Link } from "@tanstack/react-router";
import { memo } from "react";
import type { JobView } from "@/api/generated";
import { useClock } from "@/components/Clock";
import { WaitReason } from "@/components/WaitReason";
import { duration, moment } from "@/lib/format";
import { ownerOf } from "@/lib/owner";
import { asksFor } from "@/lib/resources";
import { startWords } from "@/lib/starting";
import classes from "./QueueTable.module.css";
import { reasonOf } from "./sections";
import { waitingSince } from "./words";

export type Names = ReadonlyMap<string, string>;

export function QueueTable({ jobs, names }: { jobs: readonly JobView[]; names: Names }) {
  return (
    <div className={classes.panel}>
      <table className={classes.table}>
        <caption className={classes.caption}>Jobs that wait, in the order in which they go</caption>
        <Columns withReason />
        <tbody>
          {jobs.map((job) => (
            <QueueRow key={job.id} job={job} names={names} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Columns({ withReason = false }: { withReason?: boolean }) {
  return (
    <thead>
      <tr>
        <th scope="col">Place</th>
        <th scope="col">Job</th>
        <th scope="col">Priority</th>
        <th scope="col">Asks for</th>
        {withReason ? <th scope="col">Why it waits</th> : null}
        <th scope="col">Estimated start</th>
        <th scope="col">Waits for</th>
      </tr>
    </thead>
  );
}

/**
 * Remembered: the clock concerns two cells, which follow the time themselves. Without `names`, the project and the
 * reason are those of the rows around it.
 */
export const QueueRow = memo(function QueueRow({ job, names }: { job: JobView; names?: Names }) {
  return (
    <tr>
      <td className={classes.place}>{job.queue === null ? "–" : job.queue.position}</td>
      <th scope="row">
        <Link to="/jobs/$job" params={{ job: job.id }} className={classes.name}>
          {job.name}
        </Link>
        <Whose job={job} withProject={names !== undefined} />
      </th>
      <td data-name="Priority">{job.priority}</td>
      <td data-name="Asks for">{asksFor(job.spec)}</td>
      {names === undefined ? null : (
        <td className={classes.why}>
          <WaitReason reason={reasonOf(job)} nameOf={(id) => names.get(id)} />
        </td>
      )}
      <td data-name="Estimated start">
        <Start job={job} />
      </td>
      <td data-name="Waits for">
        <Waited since={waitingSince(job)} />
      </td>
    </tr>
  );
});

function Whose({ job, withProject }: { job: JobView; withProject: boolean }) {
  const owner = ownerOf(job);
  return (
    <div className={classes.whose}>
      {withProject ? (
        <Link to="/jobs" search={{ project: job.project }} title={`Jobs of project ${job.project}`}>
          {job.project}
        </Link>
      ) : null}
      {owner === null ? null : (
        <Link to="/jobs" search={{ owner }} title={`Jobs of ${owner}`}>
          by {owner}
        </Link>
      )}
    </div>
  );
}

/** A job that the scheduler has not processed yet has no place, and no start. */
function Start({ job: { queue } }: { job: JobView }) {
  const { now } = useClock();
  if (queue?.estimated_start == null) return <span className={classes.second}>not known</span>;
  const { when, more } = startWords(queue, now);
  return (
    <>
      {when}
      {more === "" ? null : <div className={classes.second}>{more}</div>}
    </>
  );
}

function Waited({ since }: { since: string }) {
  const { now } = useClock();
  return (
    <time dateTime={since} title={moment(since)}>
      {duration((now - Date.parse(since)) / 1_000)}
    </time>
  );
}
