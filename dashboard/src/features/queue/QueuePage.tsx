/** Who goes next, what they wait for, and what is free: in the order and the words of the service. */
import { Link, useSearch } from "@tanstack/react-router";
import { type JobView, listNodes, listQueue } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { Clock, useClock } from "@/components/Clock";
import { Empty } from "@/components/Empty";
import { Failed } from "@/components/Failed";
import { SkeletonRows } from "@/components/SkeletonRows";
import { PageStale } from "@/components/Stale";
import { usePageTitle } from "@/components/usePageTitle";
import { WaitReason } from "@/components/WaitReason";
import { duration, moment } from "@/lib/format";
import { ownerOf } from "@/lib/owner";
import { asksFor, freeSentence } from "@/lib/resources";
import { startWords } from "@/lib/starting";
import classes from "./QueuePage.module.css";
import { queueSentence, waitingSince } from "./words";

export function QueuePage() {
  usePageTitle("Queue");
  const { project } = useSearch({ from: "/queue" });
  const key = ["queue", project ?? ""];
  const queue = usePolled({
    key,
    fetch: (signal) => listQueue({ query: { project }, signal, throwOnError: true }),
    seconds: 5,
  });
  const nodes = usePolled({
    key: ["nodes"],
    fetch: (signal) => listNodes({ signal, throwOnError: true }),
    seconds: 5,
  });
  const jobs = queue.data?.items;
  return (
    <>
      <h1 className={classes.title}>Queue</h1>
      <PageStale of={key} />
      <p className={classes.summary}>
        {jobs === undefined || jobs.length === 0 ? null : <strong>{queueSentence(jobs.length)} </strong>}
        {nodes.data === undefined ? null : (
          <>
            {freeSentence(nodes.data.items)} <Link to="/nodes">All nodes</Link>
          </>
        )}
      </p>
      {jobs === undefined && queue.error !== null ? (
        <Failed error={queue.error} retry={() => void queue.refetch()} />
      ) : null}
      {jobs === undefined && queue.error === null ? <SkeletonRows label="The queue is loading" /> : null}
      {jobs?.length === 0 && project !== undefined ? (
        <Empty title="Nothing waits in this project">
          <p>
            <Link to="/queue">Show the whole queue</Link>
          </p>
        </Empty>
      ) : null}
      {jobs?.length === 0 && project === undefined ? (
        <Empty title="Nothing waits" command="lockstep submit examples/gpt.yaml">
          <p>
            A job that is submitted now starts as soon as its devices are free. <Link to="/submit">Write one here</Link>
            , or submit one from a terminal:
          </p>
        </Empty>
      ) : null}
      {jobs === undefined || jobs.length === 0 ? null : (
        <Clock of={key}>
          <QueueTable jobs={jobs} />
        </Clock>
      )}
    </>
  );
}

function QueueTable({ jobs }: { jobs: readonly JobView[] }) {
  const { now } = useClock();
  const names = new Map(jobs.map((job) => [job.id, job.name]));
  return (
    <div className={classes.panel}>
      <table className={classes.table}>
        <caption className={classes.caption}>Jobs that wait, in the order in which they go</caption>
        <thead>
          <tr>
            <th scope="col">Place</th>
            <th scope="col">Job</th>
            <th scope="col">Priority</th>
            <th scope="col">Asks for</th>
            <th scope="col">Why it waits</th>
            <th scope="col">Estimated start</th>
            <th scope="col">Waits for</th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={job.id}>
              <td className={classes.place}>{job.queue === null ? "–" : job.queue.position}</td>
              <th scope="row">
                <Link to="/jobs/$job" params={{ job: job.id }} className={classes.name}>
                  {job.name}
                </Link>
                <Whose job={job} />
              </th>
              <td data-name="Priority">{job.priority}</td>
              <td data-name="Asks for">{asksFor(job.spec)}</td>
              <td className={classes.why}>
                <WaitReason reason={job.queue?.reason ?? job.reason ?? ""} nameOf={(id) => names.get(id)} />
              </td>
              <td data-name="Estimated start">
                <Start job={job} now={now} />
              </td>
              <td data-name="Waits for">
                <time dateTime={waitingSince(job)} title={moment(waitingSince(job))}>
                  {duration((now - Date.parse(waitingSince(job))) / 1_000)}
                </time>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Whose({ job }: { job: JobView }) {
  const owner = ownerOf(job);
  return (
    <div className={classes.whose}>
      <Link to="/jobs" search={{ project: job.project }} title={`Jobs of project ${job.project}`}>
        {job.project}
      </Link>
      {owner === null ? null : (
        <Link to="/jobs" search={{ owner }} title={`Jobs of ${owner}`}>
          by {owner}
        </Link>
      )}
    </div>
  );
}

/** A job that the scheduler has not looked at yet has no place, and nothing is said of its start. */
function Start({ job, now }: { job: JobView; now: number }) {
  if (job.queue === null) return <span className={classes.second}>not known</span>;
  const { when, more } = startWords(job.queue, now);
  return (
    <>
      <span className={job.queue.estimated_start == null ? classes.second : undefined}>{when}</span>
      {more === "" ? null : <div className={classes.second}>{more}</div>}
    </>
  );
}
