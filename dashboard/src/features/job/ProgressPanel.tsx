/** How far the job is: steps, samples, time gone and time left. */
import type { JobView } from "@/api/generated";
import { useClock } from "@/components/Clock";
import { Panel } from "@/components/Panel";
import { hasEnded } from "@/lib/ended";
import { duration, number } from "@/lib/format";
import { Figure } from "./Figure";
import classes from "./ProgressPanel.module.css";
import { percent } from "./time-shares";

export function ProgressPanel({ job }: { job: JobView }) {
  return (
    <Panel className={classes.panel} aria-label="Progress">
      <Going job={job} />
    </Panel>
  );
}

function Going({ job }: { job: JobView }) {
  const { now, silentSince } = useClock();
  const { progress } = job;
  const end = job.finished_at === null ? now : Date.parse(job.finished_at);
  const elapsed = job.started_at === null ? null : (end - Date.parse(job.started_at)) / 1_000;
  const fraction = progress?.fraction ?? null;
  const left = hasEnded(job) ? null : (progress?.eta_seconds ?? null);
  return (
    <>
      {fraction === null ? null : (
        <div
          className={classes.bar}
          role="progressbar"
          aria-label="Steps done"
          aria-valuemin={0}
          aria-valuemax={100}
          aria-valuenow={Math.round(fraction * 100)}
          data-state={job.state}
        >
          <div className={classes.done} style={{ width: `${fraction * 100}%` }} />
        </div>
      )}
      <dl className={classes.figures}>
        {progress === null ? null : (
          <Figure
            name="Step"
            value={number(progress.step)}
            more={progress.steps === null ? "" : ` of ${number(progress.steps)}`}
          />
        )}
        {fraction === null ? null : <Figure name="Done" value={percent(fraction)} />}
        {progress?.samples == null ? null : <Figure name="Samples" value={number(progress.samples)} />}
        {elapsed === null ? null : (
          <Figure
            name={hasEnded(job) ? "Took" : "Elapsed"}
            value={duration(elapsed)}
            stoppedAt={hasEnded(job) ? undefined : silentSince}
          />
        )}
        {left === null ? null : <Figure name="Left, about" value={duration(left)} />}
      </dl>
    </>
  );
}
