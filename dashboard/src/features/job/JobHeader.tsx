/** The head of a job's page, which stays in view: what the job is and how far, and what is shown of it below. */
import type { ReactNode } from "react";
import type { JobView } from "@/api/generated";
import { StateBadge } from "@/components/StateBadge";
import { JobActions } from "./JobActions";
import { JobFacts, ProgressBar } from "./JobFacts";
import classes from "./JobHeader.module.css";

/** Ids begin with their time, so the end is what tells two apart. */
export function shortId(id: string): string {
  return id.slice(-8);
}

/** `children` are the second line. */
export function JobHeader({ job, children }: { job: JobView; children?: ReactNode }) {
  return (
    <header className={classes.header}>
      <div className={classes.line}>
        <div className={classes.title}>
          <h1 title={job.name}>{job.name}</h1>
          <StateBadge state={job.state} intent={job.intent} />
        </div>
        <JobFacts job={job} />
        <JobActions job={job} />
      </div>
      <ProgressBar job={job} />
      <div className={classes.second}>{children}</div>
    </header>
  );
}
