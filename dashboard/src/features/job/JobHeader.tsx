/** What a job is, what it promises, how far it is, and what can be done with it. */
import type { JobView } from "@/api/generated";
import { StateBadge } from "@/components/StateBadge";
import { useNow } from "@/components/useNow";
import { ago, moment } from "@/lib/format";
import { CopyButton } from "./CopyButton";
import { JobActions } from "./JobActions";
import classes from "./JobHeader.module.css";
import { ProgressPanel } from "./ProgressPanel";
import { PromisePanel } from "./PromisePanel";

/** Ids begin with their time, so the end is what tells two apart. */
export function shortId(id: string): string {
  return id.slice(-8);
}

export function JobHeader({ job }: { job: JobView }) {
  const now = useNow(10);
  return (
    <header className={classes.header}>
      <div className={classes.top}>
        <div className={classes.title}>
          <h1>{job.name}</h1>
          <StateBadge state={job.state} intent={job.intent} />
        </div>
        <JobActions job={job} />
      </div>
      <dl className={classes.facts}>
        <div>
          <dt>Id</dt>
          <dd>
            <code title={job.id}>{shortId(job.id)}</code>
            <CopyButton text={job.id} what="id" />
          </dd>
        </div>
        <div>
          <dt>Project</dt>
          <dd>{job.project}</dd>
        </div>
        <div>
          <dt>Submitted</dt>
          <dd title={moment(job.created_at)}>{ago(job.created_at, now)}</dd>
        </div>
        {job.attempt === null ? null : (
          <div>
            <dt>{job.attempt.state === "ended" ? "Ran on" : "Runs on"}</dt>
            <dd>
              {job.attempt.nodes.join(", ")}
              {job.attempt.number > 1 ? `, attempt ${job.attempt.number}` : ""}
            </dd>
          </div>
        )}
        {Object.keys(job.labels).length === 0 ? null : (
          <div>
            <dt>Labels</dt>
            <dd className={classes.labels}>
              {Object.entries(job.labels).map(([key, value]) => (
                <span key={key} className={classes.label}>
                  {key}={value}
                </span>
              ))}
            </dd>
          </div>
        )}
      </dl>
      <div className={classes.panels}>
        <PromisePanel job={job} />
        <ProgressPanel job={job} />
      </div>
    </header>
  );
}
