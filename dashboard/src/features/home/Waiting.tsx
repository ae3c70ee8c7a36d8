/** When the own jobs that wait start. */
import { Link } from "@tanstack/react-router";
import type { HomeJobs } from "@/api/generated";
import { useClock } from "@/components/Clock";
import { Panel } from "@/components/Panel";
import { asksFor } from "@/lib/resources";
import classes from "./HomePage.module.css";
import { When } from "./When";
import { whenOf } from "./words";

export function Waiting({ jobs }: { jobs: HomeJobs }) {
  const { now } = useClock();
  const more = jobs.queued - jobs.waiting.length;
  return (
    <Panel className={classes.panel} aria-label="When my jobs start">
      <div className={classes.head}>
        <h2>When my jobs start</h2>
        <Link to="/queue">Queue</Link>
      </div>
      {jobs.waiting.length === 0 ? (
        <p className={classes.none}>None of your jobs waits.</p>
      ) : (
        <ul className={classes.rows}>
          {jobs.waiting.map((job) => (
            <li key={job.id} className={classes.waits}>
              <span className={classes.place}>{job.queue?.position ?? "–"}</span>
              <Link to="/jobs/$job" params={{ job: job.id }} className={classes.name}>
                {job.name}
              </Link>
              <span className={classes.asks} title={asksFor(job.spec)}>
                {asksFor(job.spec)}
              </span>
              <span className={classes.when}>
                <When when={whenOf(job, now)} />
              </span>
            </li>
          ))}
        </ul>
      )}
      {more > 0 ? <p className={classes.none}>{more === 1 ? "1 more waits" : `${more} more wait`}.</p> : null}
    </Panel>
  );
}
