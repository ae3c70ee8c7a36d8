/** How a job ended: why, where, what it wrote last, and what to do about it. */
import { Link } from "@tanstack/react-router";
import { type ReactNode, useLayoutEffect, useRef } from "react";
import type { JobView } from "@/api/generated";
import { useSummaries } from "@/api/series";
import { AnsiText } from "@/components/logs/AnsiText";
import { Panel } from "@/components/Panel";
import { raisedIn } from "@/lib/exception";
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
  const raised = job.state === "failed" && excerpt ? raisedIn(excerpt) : null;
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
      <NotFinite job={job} />
      {outcome.exception || raised ? (
        <p className={classes.exception}>
          {outcome.exception ?? raised?.exception}
          {raised?.frame ? <span className={classes.frame}>{raised.frame}</span> : null}
        </p>
      ) : null}
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
          <Excerpt text={excerpt} line={raised?.line ?? null} />
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
  succeeded: "Succeeded",
  failed: "Failed",
  cancelled: "Cancelled",
};

/** The last lines, scrolled to the one that names the exception; to their end where none does. */
function Excerpt({ text, line }: { text: string; line: number | null }) {
  const box = useRef<HTMLPreElement>(null);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const row = line === null ? null : element.children[line];
    if (row instanceof HTMLElement) {
      const end = row.getBoundingClientRect().bottom - element.getBoundingClientRect().top + element.scrollTop;
      // With what led to it above, and what came after below as far as there is room.
      element.scrollTop = end - element.clientHeight * 0.8;
    } else element.scrollTop = element.scrollHeight;
  }, [line]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard
    <pre ref={box} tabIndex={0}>
      <AnsiText text={text} />
    </pre>
  );
}

const NONE_LIVE: ReadonlySet<string> = new Set();
/** So many series are named; the cards of the others say it themselves. */
const NAMED_MAX = 3;

/** Series with values that are no numbers: a job may end well over a loss that is NaN. */
function NotFinite({ job }: { job: JobView }) {
  const { byJob } = useSummaries([job], NONE_LIVE);
  const found = [...(byJob.get(job.id) ?? [])].filter(([, series]) => series.non_finite > 0);
  if (found.length === 0) return null;
  found.sort(([, a], [, b]) => b.non_finite - a.non_finite);
  const others = found.length - NAMED_MAX;
  return (
    <ul className={classes.findings}>
      {found.slice(0, NAMED_MAX).map(([name, { non_finite, count, last }]) => (
        <li key={name}>
          <code>{name}</code> is not finite at {number(non_finite)} of {number(count)} points
          {Number.isFinite(last) ? "" : ", the last one included"}.
        </li>
      ))}
      {others > 0 ? <li>{number(others)} more series have points that are not finite.</li> : null}
    </ul>
  );
}

function sentence(text: string): string {
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
