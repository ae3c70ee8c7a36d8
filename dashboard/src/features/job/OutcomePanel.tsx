/** How a job ended, in one line; of a failed one first why, where in the code, and what to do about it. */
import { useMediaQuery } from "@mantine/hooks";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useLayoutEffect, useRef, useState } from "react";
import type { JobView, Outcome } from "@/api/generated";
import { useSummaries } from "@/api/series";
import { looking } from "@/components/Button";
import { AnsiText } from "@/components/logs/AnsiText";
import { raisedIn } from "@/lib/exception";
import { number } from "@/lib/format";
import { FIRST_ERROR } from "@/lib/log-view";
import classes from "./OutcomePanel.module.css";

export function OutcomePanel({ job, reference }: { job: JobView; reference: string }) {
  const { outcome } = job;
  if (outcome === null) {
    return job.state === "cancelled" ? (
      <section className={classes.outcome} data-state={job.state} aria-label="Outcome">
        <div className={classes.line}>
          <h2>Cancelled</h2>
          <p>It was cancelled before any of it ran.</p>
        </div>
      </section>
    ) : null;
  }
  return (
    <section className={classes.outcome} data-state={job.state} aria-label="Outcome" data-testid="outcome">
      {job.state === "failed" ? (
        <Failure job={job} outcome={outcome} reference={reference} />
      ) : (
        <div className={classes.line}>
          <h2>{TITLES[job.state] ?? "Ended"}</h2>
          <Said job={job} outcome={outcome} />
          <NotFinite job={job} />
          {job.state === "succeeded" ? null : <FirstError job={job} outcome={outcome} reference={reference} />}
        </div>
      )}
    </section>
  );
}

interface FailureProps {
  job: JobView;
  outcome: Outcome;
  reference: string;
}

/** On a telephone the charts begin on the first screen: what is not needed to decide is folded. */
const NARROW = "(max-width: 48rem)";

/** The exception, its last frame and the advice first, then the rest; the last lines are beside it where there is room. */
function Failure({ job, outcome, reference }: FailureProps) {
  const isNarrow = useMediaQuery(NARROW, false, { getInitialValueInEffect: false }) ?? false;
  const excerpt = outcome.log_excerpt || outcome.traceback;
  const raised = excerpt ? raisedIn(excerpt) : null;
  const exception = outcome.exception ?? raised?.exception;
  const said = <Said job={job} outcome={outcome} isShort={!exception} />;
  const lines = excerpt ? (
    <figure className={classes.figure}>
      <figcaption>{outcome.rank == null ? "Its last lines" : `The last lines of rank ${outcome.rank}`}</figcaption>
      <Excerpt text={excerpt} line={raised?.line ?? null} />
    </figure>
  ) : null;
  return (
    <div className={classes.failure}>
      <div className={classes.why}>
        <div className={classes.head}>
          <h2>Failed</h2>
          {exception ? (
            <div>
              <p className={classes.exception}>{exception}</p>
              {raised?.frame ? <Frame of={raised.frame} /> : null}
            </div>
          ) : (
            <p>{sentence(outcome.message)}</p>
          )}
        </div>
        {outcome.advice ? (
          <p className={classes.advice}>
            <strong>What to do.</strong> {outcome.advice}
          </p>
        ) : null}
        <div className={classes.line}>
          {isNarrow ? null : said}
          <NotFinite job={job} />
          <FirstError job={job} outcome={outcome} reference={reference} />
        </div>
      </div>
      {isNarrow ? (
        <Folded title={lines ? "Rank, node and last lines" : "Rank and node"}>
          <div className={classes.line}>{said}</div>
          {lines}
        </Folded>
      ) : (
        lines
      )}
    </div>
  );
}

/** Its content is there once it is open: the last lines scroll to the exception, which needs their size. */
function Folded({ title, children }: { title: string; children: ReactNode }) {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <details className={classes.folded} onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>{title}</summary>
      {isOpen ? children : null}
    </details>
  );
}

/** The folder of a job has a long path, of which the end tells files apart. */
function Frame({ of }: { of: string }) {
  return (
    <p className={classes.frame} title={of}>
      {of.replace(/^File ".*\/([^/"]+\/[^/"]+)"/, 'File "…/$1"')}
    </p>
  );
}

/** What the service says of the end, and where it was. */
function Said({ job, outcome, isShort = false }: { job: JobView; outcome: Outcome; isShort?: boolean }) {
  const facts: [string, string | null | undefined][] = [
    ["Rank", outcome.rank == null ? null : String(outcome.rank)],
    ["Node", outcome.node],
    ["Exit code", outcome.exit_code == null ? null : String(outcome.exit_code)],
    ["Signal", outcome.signal],
    ["Last step", outcome.last_step == null ? null : number(outcome.last_step)],
  ];
  return (
    <>
      {isShort && outcome.reason === job.state ? null : (
        <p>
          {isShort ? null : sentence(outcome.message)}
          {outcome.reason === job.state ? null : <code className={classes.reason}>{outcome.reason}</code>}
        </p>
      )}
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
    </>
  );
}

function FirstError({ job, outcome: { rank }, reference }: FailureProps) {
  return (
    <Link
      to="/jobs/$job"
      params={{ job: reference }}
      search={{
        tab: "logs",
        ...(job.attempt === null ? {} : { attempt: job.attempt.number }),
        ...(rank == null ? {} : { rank }),
        line: FIRST_ERROR,
      }}
      {...looking({ size: "sm" })}
    >
      {rank == null ? "First error in the logs" : `First error of rank ${rank} in the logs`}
    </Link>
  );
}

const TITLES: Partial<Record<JobView["state"], string>> = {
  succeeded: "Succeeded",
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
