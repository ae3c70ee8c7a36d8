/** Where the time of a step goes, as one bar and in figures. */
import type { JobView } from "@/api/generated";
import { Failed } from "@/components/Failed";
import { Panel } from "@/components/Panel";
import { useStepTimes } from "./job-queries";
import classes from "./TimeSharesPanel.module.css";
import { percent, remark, timeShares } from "./time-shares";

export function TimeSharesPanel({ job }: { job: JobView }) {
  const { data: series, error } = useStepTimes(job);
  const found = series === undefined ? null : timeShares(series);
  return (
    <Panel className={classes.panel} title="Where the time of a step goes" data-testid="time-shares">
      {error !== null && series === undefined ? <Failed error={error} /> : null}
      {series !== undefined && found === null ? <p className={classes.said}>No step was timed yet.</p> : null}
      {found === null ? null : (
        <>
          <p className={classes.said}>
            {remark(found)} {found.steps === 1 ? "One step" : `Mean of the newest ${found.steps} steps`}.
          </p>
          <div className={classes.bar} aria-hidden="true">
            {found.shares.map(({ part, share }) => (
              <div key={part} data-part={part} style={{ width: `${share * 100}%` }} />
            ))}
          </div>
          <dl className={classes.figures}>
            {found.shares.map(({ part, name, seconds, share }) => (
              <div key={part}>
                <dt>
                  <span className={classes.swatch} data-part={part} aria-hidden="true" />
                  {name}
                </dt>
                <dd>
                  {percent(share)} <span className={classes.seconds}>{short(seconds)}</span>
                </dd>
              </div>
            ))}
          </dl>
        </>
      )}
    </Panel>
  );
}

/** 1.25 s, 12.3 ms, 140 µs. */
function short(seconds: number): string {
  if (seconds >= 1) return `${seconds.toPrecision(3)} s`;
  if (seconds >= 0.001) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  return `${Math.round(seconds * 1e6)} µs`;
}
