/** What one wants to know first: how it ended, what happened before, where the time goes, and the curves. */
import { Link } from "@tanstack/react-router";
import type { JobView } from "@/api/generated";
import { hasEnded } from "@/lib/ended";
import { counted } from "@/lib/resources";
import { ChartsPanel } from "./ChartsPanel";
import { useJobEvents } from "./job-queries";
import { OutcomePanel } from "./OutcomePanel";
import classes from "./OverviewTab.module.css";
import { SilenceNotice } from "./SilenceNotice";
import { TimeSharesPanel } from "./TimeSharesPanel";
import { earlierAttempts } from "./timeline";

export function OverviewTab({ job, reference }: { job: JobView; reference: string }) {
  return (
    <div className={classes.parts}>
      {hasEnded(job) ? <OutcomePanel job={job} reference={reference} /> : null}
      {job.kind === "script" && job.state === "running" ? <SilenceNotice job={job} reference={reference} /> : null}
      {(job.attempt?.number ?? 1) > 1 || (job.state === "queued" && job.attempt !== null) ? (
        <Earlier job={job} reference={reference} />
      ) : null}
      {job.kind === "train" ? <TimeSharesPanel job={job} /> : null}
      <section aria-labelledby="charts-title">
        <h2 id="charts-title" className={classes.title}>
          Curves
        </h2>
        <ChartsPanel job={job} />
      </section>
    </div>
  );
}

function Earlier({ job, reference }: { job: JobView; reference: string }) {
  const { events } = useJobEvents(job);
  const sentences = earlierAttempts(events ?? [], job);
  if (sentences.length === 0) return null;
  return (
    <section aria-label="Earlier attempts" className={classes.earlier}>
      {sentences.slice(-3).map((sentence) => (
        <p key={sentence}>{sentence}</p>
      ))}
      <p>
        {sentences.length > 3 ? `And ${counted(sentences.length - 3, "attempt")} before that. ` : null}
        <Link to="/jobs/$job" params={{ job: reference }} search={{ tab: "timeline" }}>
          All attempts
        </Link>
      </p>
    </section>
  );
}
