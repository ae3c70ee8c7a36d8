/** What one wants to see first: how it ended or why it waits in a few lines, then the curves, then where the time goes. */
import { Link } from "@tanstack/react-router";
import type { JobView } from "@/api/generated";
import { hasEnded } from "@/lib/ended";
import { ChartsPanel } from "./ChartsPanel";
import { useJobEvents } from "./job-queries";
import { OutcomePanel } from "./OutcomePanel";
import classes from "./OverviewTab.module.css";
import { SilenceNotice } from "./SilenceNotice";
import { TimeSharesPanel } from "./TimeSharesPanel";
import { earlierAttempts } from "./timeline";
import { WhyPanel } from "./WhyPanel";

interface OverviewTabProps {
  job: JobView;
  reference: string;
  /** The place of the charts' controls, once it is there. */
  controls: HTMLElement | null;
}

export function OverviewTab({ job, reference, controls }: OverviewTabProps) {
  return (
    <div className={classes.parts}>
      {job.state === "queued" ? <WhyPanel job={job} /> : null}
      {hasEnded(job) ? <OutcomePanel job={job} reference={reference} /> : null}
      {job.kind === "script" && job.state === "running" ? <SilenceNotice job={job} reference={reference} /> : null}
      {(job.attempt?.number ?? 1) > 1 || (job.state === "queued" && job.attempt !== null) ? (
        <Earlier job={job} reference={reference} />
      ) : null}
      <section aria-labelledby="charts-title">
        <h2 id="charts-title" className={classes.unseen}>
          Charts
        </h2>
        <ChartsPanel
          job={job}
          controls={controls}
          below={job.kind === "train" && job.attempt !== null ? <TimeSharesPanel job={job} /> : null}
        />
      </section>
    </div>
  );
}

/** One line, whose place is there before its words: the charts below it do not move. */
function Earlier({ job, reference }: { job: JobView; reference: string }) {
  const { events } = useJobEvents(job);
  const newest = earlierAttempts(events ?? [], job).at(-1);
  return (
    <section aria-label="Earlier attempts" className={classes.earlier}>
      <p title={newest}>{newest ?? `Attempt ${job.attempt?.number}.`}</p>
      <Link to="/jobs/$job" params={{ job: reference }} search={{ tab: "timeline" }}>
        All attempts
      </Link>
    </section>
  );
}
