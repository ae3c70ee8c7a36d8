/** How a job ended: why, where, what it wrote last, and what to do about it. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { JobView } from "@/api/generated";
import { AnsiText } from "@/components/logs/AnsiText";
import { Panel } from "@/components/Panel";
import { number } from "@/lib/format";
import { FIRST_ERROR } from "@/lib/log-view";
import buttons from "./buttons.module.css";
import classes from "./OutcomePanel.module.css";

export function OutcomePanel({ job, reference }: { job: JobView; reference: string }) {
  const { outcome } = job;
  if (outcome === null) {
    return job.state === "cancelled" ? (
      <Panel className={classes.panel} data-state={job.state} title="Cancelled">
        <p className={classes.message}>It was cancelled before any of it ran.</p>
      </Panel>
    ) : null;
  }
  const excerpt = outcome.log_excerpt || outcome.traceback;
  const facts: [string, ReactNode][] = [
    ["Rank", outcome.rank == null ? null : String(outcome.rank)],
    ["Node", outcome.node],
    ["Exit code", outcome.exit_code == null ? null : String(outcome.exit_code)],
    ["Signal", outcome.signal],
    ["Last step", outcome.last_step == null ? null : number(outcome.last_step)],
  ];
  const logs = {
    tab: "logs" as const,
    ...(job.attempt === null ? {} : { attempt: job.attempt.number }),
    ...(outcome.rank == null ? {} : { rank: outcome.rank }),
  };
  return (
    <Panel className={classes.panel} data-state={job.state} title={TITLES[job.state] ?? "Ended"} data-testid="outcome">
      <p className={classes.message}>
        {sentence(outcome.message)}
        {outcome.reason === job.state ? null : <code className={classes.reason}>{outcome.reason}</code>}
      </p>
      {outcome.exception ? <p className={classes.exception}>{outcome.exception}</p> : null}
      <dl className={classes.facts}>
        {facts
          .filter(([, value]) => value)
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
      {outcome.advice ? (
        <p className={classes.advice}>
          <strong>What to do.</strong> {outcome.advice}
        </p>
      ) : null}
      {excerpt ? (
        <figure className={classes.figure}>
          <figcaption>{outcome.rank == null ? "Its last lines" : `The last lines of rank ${outcome.rank}`}</figcaption>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard */}
          <pre tabIndex={0}>
            <AnsiText text={excerpt} />
          </pre>
        </figure>
      ) : null}
      {job.state === "succeeded" ? null : (
        <div className={classes.links}>
          <Link
            to="/jobs/$job"
            params={{ job: reference }}
            search={{ ...logs, line: FIRST_ERROR }}
            className={buttons.button}
          >
            {outcome.rank == null ? "First error in the logs" : `First error of rank ${outcome.rank} in the logs`}
          </Link>
        </div>
      )}
    </Panel>
  );
}

const TITLES: Partial<Record<JobView["state"], string>> = {
  succeeded: "It succeeded",
  failed: "It failed",
  cancelled: "It was cancelled",
};

function sentence(text: string): string {
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
