/** The facts of a job in one line: what does not fit, of the least important at its end, is not shown. */
import { Link } from "@tanstack/react-router";
import type { JobView } from "@/api/generated";
import { useClock } from "@/components/Clock";
import { ownerOf } from "@/lib/owner";
import classes from "./JobFacts.module.css";
import { factsOf } from "./job-facts";

export function JobFacts({ job }: { job: JobView }) {
  const time = useClock();
  const owner = ownerOf(job);
  const { attempt } = job;
  return (
    <ul className={classes.facts} aria-label="Progress">
      {factsOf(job, time).map(({ name, before, value, after, title }) => (
        <li key={name} data-fact={name} title={title}>
          {before ? `${before} ` : null}
          <strong>{value}</strong>
          {after ? ` ${after}` : null}
        </li>
      ))}
      {attempt === null ? null : (
        <li data-fact="nodes">
          {attempt.state === "ended" ? "ran on " : "on "}
          {attempt.nodes.map((node, place) => (
            <span key={node}>
              {place === 0 ? null : ", "}
              <Link to="/jobs" search={{ node }} title={`Jobs on ${node}`}>
                {node}
              </Link>
            </span>
          ))}
        </li>
      )}
      {owner === null ? null : (
        <li data-fact="owner">
          <Link to="/jobs" search={{ owner }} title={`Jobs of ${owner}`}>
            by {owner}
          </Link>
        </li>
      )}
    </ul>
  );
}

/** How far the job is, along the whole width; its place is kept where that is not known. */
export function ProgressBar({ job: { progress, state } }: { job: JobView }) {
  const fraction = progress?.fraction ?? null;
  if (fraction === null) return <div className={classes.bar} />;
  return (
    <div
      className={classes.bar}
      role="progressbar"
      aria-label="Steps done"
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(fraction * 100)}
      data-state={state}
    >
      <div className={classes.done} style={{ width: `${fraction * 100}%` }} />
    </div>
  );
}
