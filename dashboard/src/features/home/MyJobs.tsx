/** The own jobs: those that run, those that are paused, then the newest that have ended. */
import { Link } from "@tanstack/react-router";
import type { HomeJobs, JobView } from "@/api/generated";
import { useClock } from "@/components/Clock";
import { Panel } from "@/components/Panel";
import { StateBadge } from "@/components/StateBadge";
import { percentDone } from "@/lib/format";
import { asksFor } from "@/lib/resources";
import classes from "./HomePage.module.css";
import { When } from "./When";
import { jobsSentence, whenOf } from "./words";

export function MyJobs({ jobs, owner }: { jobs: HomeJobs; owner: string | undefined }) {
  return (
    <Panel className={classes.panel} aria-label="My jobs">
      <div className={classes.head}>
        <h2>My jobs</h2>
        <span>{jobsSentence(jobs)}</span>
        <Link to="/jobs" search={owner === undefined ? {} : { owner }} aria-label="All of my jobs">
          All
        </Link>
      </div>
      {jobs.first.length === 0 ? (
        <p className={classes.none}>
          {jobs.queued === 0 ? "You have no jobs yet." : "None of your jobs has started yet."}
        </p>
      ) : (
        <ul className={classes.rows}>
          {jobs.first.map((job) => (
            <Row key={job.id} job={job} />
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Row({ job }: { job: JobView }) {
  const { now } = useClock();
  const done = job.state === "running" ? (job.progress?.fraction ?? null) : null;
  return (
    <li className={classes.job}>
      <StateBadge state={job.state} intent={job.intent} />
      <Link to="/jobs/$job" params={{ job: job.id }} className={classes.name}>
        {job.name}
      </Link>
      <span className={classes.asks} title={asksFor(job.spec)}>
        {asksFor(job.spec)}
      </span>
      <span className={classes.done}>
        {done === null ? null : (
          <>
            <span className={classes.progress} aria-hidden>
              <span style={{ width: percentDone(done).replace(" ", "") }} />
            </span>
            {percentDone(done)}
          </>
        )}
      </span>
      <span className={classes.when}>
        <When when={whenOf(job, now)} />
      </span>
    </li>
  );
}
