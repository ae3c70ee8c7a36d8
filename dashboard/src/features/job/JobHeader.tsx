/** What a job is, what it promises, how far it is, and what can be done with it. */
import { Link } from "@tanstack/react-router";
import type { JobView } from "@/api/generated";
import { CopyButton } from "@/components/CopyButton";
import { StateBadge } from "@/components/StateBadge";
import { useNow } from "@/components/useNow";
import { ago, moment } from "@/lib/format";
import { ownerOf } from "@/lib/owner";
import { timeLimitWords } from "@/lib/time-limit";
import { CommitId } from "./CommitId";
import { JobActions } from "./JobActions";
import classes from "./JobHeader.module.css";
import { useCommit } from "./job-queries";
import { ProgressPanel } from "./ProgressPanel";
import { PromisePanel } from "./PromisePanel";
import { WhyPanel } from "./WhyPanel";

/** Ids begin with their time, so the end is what tells two apart. */
export function shortId(id: string): string {
  return id.slice(-8);
}

export function JobHeader({ job }: { job: JobView }) {
  const now = useNow(10);
  const owner = ownerOf(job);
  const code = useCommit(job);
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
          <dd>
            <Link to="/jobs" search={{ project: job.project }} title={`Jobs of project ${job.project}`}>
              {job.project}
            </Link>
          </dd>
        </div>
        <div>
          <dt>Submitted</dt>
          <dd className={classes.words}>
            <time dateTime={job.created_at} title={moment(job.created_at)}>
              {ago(job.created_at, now)}
            </time>{" "}
            {owner === null ? null : (
              <Link to="/jobs" search={{ owner }} title={`Jobs of ${owner}`}>
                by {owner}
              </Link>
            )}
          </dd>
        </div>
        {job.limit == null ? null : (
          <div>
            <dt>Limit</dt>
            <dd>{timeLimitWords(job.limit)}</dd>
          </div>
        )}
        {code === null || code.commit === null ? null : (
          <div>
            <dt>Commit</dt>
            <dd>
              <CommitId commit={code.commit} />
            </dd>
          </div>
        )}
        {job.attempt === null ? null : (
          <div>
            <dt>{job.attempt.state === "ended" ? "Ran on" : "Runs on"}</dt>
            <dd className={classes.several}>
              {job.attempt.nodes.map((node) => (
                <Link key={node} to="/jobs" search={{ node }} title={`Jobs on ${node}`}>
                  {node}
                </Link>
              ))}
              {job.attempt.number > 1 ? <span>attempt {job.attempt.number}</span> : null}
            </dd>
          </div>
        )}
        {Object.keys(job.labels).length === 0 ? null : (
          <div>
            <dt>Labels</dt>
            <dd className={classes.several}>
              {Object.entries(job.labels).map(([key, value]) => (
                <Link
                  key={key}
                  to="/jobs"
                  search={{ label: `${key}=${value}` }}
                  title={`Jobs with ${key}=${value}`}
                  className={classes.label}
                >
                  {key}={value}
                </Link>
              ))}
            </dd>
          </div>
        )}
      </dl>
      <div className={classes.panels}>
        <PromisePanel job={job} />
        {job.state === "queued" ? <WhyPanel job={job} /> : <ProgressPanel job={job} />}
      </div>
    </header>
  );
}
