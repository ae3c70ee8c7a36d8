/** One attempt: when and where it ran, how it made the batch, and how it ended. */
import { Link } from "@tanstack/react-router";
import type { AttemptView, JobView } from "@/api/generated";
import { duration, moment, number } from "@/lib/format";
import { FIRST_ERROR } from "@/lib/log-view";
import { counted } from "@/lib/resources";
import classes from "./AttemptRow.module.css";
import { changedFactors, endingOf, firstLine, planParts, type Span, whereItFailed } from "./attempts";

interface Props {
  job: JobView;
  attempt: AttemptView;
  /** The attempt before it. */
  before: AttemptView | undefined;
  /** The checkpoint's step that it went on from; undefined where it began anew, or nobody knows yet. */
  resumedFrom: number | undefined;
  /** How many kept files it began with; undefined where it had none. */
  restored: number | undefined;
  span: Span | undefined;
  now: number;
}

export function AttemptRow({ job, attempt, before, resumedFrom, restored, span, now }: Props) {
  const { icon, tone, word } = endingOf(attempt);
  return (
    <li className={classes.attempt} data-tone={tone}>
      <div className={classes.head}>
        <h3>Attempt {attempt.number}</h3>
        <span className={classes.badge}>
          <span aria-hidden>{icon}</span> {word}
        </span>
        <span className={classes.facts}>
          <time dateTime={attempt.created_at}>{moment(attempt.created_at)}</time>
          <span>{howLong(attempt, now)}</span>
          <span>on {attempt.nodes.join(", ")}</span>
          <span>{counted(attempt.world_size, "rank")}</span>
          {resumedFrom === undefined ? null : <span>from step {number(resumedFrom)} on</span>}
          {restored === undefined ? null : <span>with {counted(restored, "file")} of before</span>}
        </span>
      </div>
      {span === undefined ? null : (
        <div className={classes.track} aria-hidden>
          <div style={{ left: `${100 * span.left}%`, width: `${100 * span.width}%` }} />
        </div>
      )}
      {attempt.plan_sentence == null ? null : (
        <Batch sentence={attempt.plan_sentence} before={before?.plan_sentence ?? null} />
      )}
      <End job={job} attempt={attempt} isFailure={tone === "bad"} />
    </li>
  );
}

/** The factors stand below those of the attempt before, and what changed is set apart: the batch on the left does not. */
function Batch({ sentence, before }: { sentence: string; before: string | null }) {
  const { batch, factors, rest } = planParts(sentence);
  const changed = changedFactors(factors, before === null ? [] : planParts(before).factors);
  return (
    <p className={classes.batch} data-testid="made">
      {batch === null ? null : <span className={classes.product}>{number(batch)}</span>}{" "}
      <span className={classes.made}>
        {factors.length === 0 ? rest : null}
        {factors.map((factor, place) => (
          <span key={factor} className={classes.factor}>
            {place === 0 ? "= " : "× "}
            {changed[place] ? <strong>{factor}</strong> : factor}{" "}
          </span>
        ))}
      </span>
    </p>
  );
}

/** What no rank is to blame for has no first error to look for. */
function End({ job, attempt, isFailure }: { job: JobView; attempt: AttemptView; isFailure: boolean }) {
  const { outcome } = attempt;
  if (outcome === null || outcome.reason === "succeeded") return null;
  const where = whereItFailed(outcome);
  const exception = firstLine(outcome.exception);
  return (
    <>
      <p className={classes.end}>
        {outcome.message}
        {where === "" ? null : <span className={classes.where}> · {where}</span>}
      </p>
      {exception === "" ? null : <p className={classes.exception}>{exception}</p>}
      <div className={classes.more}>
        {outcome.advice ? (
          <details>
            <summary>What to do</summary>
            <p>{outcome.advice}</p>
          </details>
        ) : null}
        <Link
          to="/jobs/$job"
          params={{ job: job.id }}
          search={{
            tab: "logs",
            attempt: attempt.number,
            ...(outcome.rank == null ? {} : { rank: outcome.rank }),
            ...(isFailure ? { line: FIRST_ERROR } : {}),
          }}
        >
          {isFailure ? "First error" : "Logs"} of attempt {attempt.number}
        </Link>
      </div>
    </>
  );
}

function howLong({ running_at: running, ended_at: ended, created_at: placed }: AttemptView, now: number): string {
  const seconds = ((ended === null ? now : Date.parse(ended)) - Date.parse(running ?? placed)) / 1_000;
  if (running === null) return ended === null ? `starting for ${duration(seconds)}` : "its ranks never ran";
  return ended === null ? `runs for ${duration(seconds)} now` : `ran for ${duration(seconds)}`;
}
