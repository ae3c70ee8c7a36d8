/** How far the job is: steps, samples, time gone and time left. While it waits: for what, and since when. */
import { Link } from "@tanstack/react-router";
import type { JobView } from "@/api/generated";
import { useClock } from "@/components/Clock";
import { Panel } from "@/components/Panel";
import { useNameIn } from "@/components/useNameIn";
import { useNow } from "@/components/useNow";
import { WaitReason } from "@/components/WaitReason";
import { hasEnded } from "@/lib/ended";
import { duration, number } from "@/lib/format";
import { startWords } from "@/lib/starting";
import classes from "./ProgressPanel.module.css";
import { percent } from "./time-shares";

export function ProgressPanel({ job }: { job: JobView }) {
  return (
    <Panel className={classes.panel} aria-label="Progress">
      {job.queue !== null ? <Waiting job={job} queue={job.queue} /> : null}
      {job.queue === null && job.state !== "queued" ? <Going job={job} /> : null}
      {job.queue === null && job.state === "queued" ? <p className={classes.reason}>{job.reason}</p> : null}
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

function Waiting({ job, queue }: { job: JobView; queue: NonNullable<JobView["queue"]> }) {
  const now = useNow();
  const clock = useClock();
  const nameOf = useNameIn(queue.reason);
  const { when, more, isKnown } = startWords(queue, clock.now);
  return (
    <>
      <p className={classes.reason}>
        <WaitReason reason={queue.reason.charAt(0).toUpperCase() + queue.reason.slice(1)} nameOf={nameOf} />
      </p>
      <dl className={classes.figures}>
        <Figure name="Place in the queue" value={number(queue.position)} />
        <Figure name="Estimated start" value={when} more={more === "" ? "" : `${isKnown ? "," : ":"} ${more}`} />
        <Figure name="Submitted" value={`${duration((now - Date.parse(job.created_at)) / 1_000)} ago`} />
      </dl>
      <Link to="/queue" className={classes.more}>
        The whole queue
      </Link>
    </>
  );
}

interface FigureProps {
  name: string;
  value: string;
  more?: string;
  /** Of a clock: the time at which it stands; null while it goes. */
  stoppedAt?: number | null;
}

function Figure({ name, value, more = "", stoppedAt }: FigureProps) {
  return (
    <div className={stoppedAt === undefined ? undefined : classes.clock}>
      <dt>
        {name}
        {stoppedAt == null ? null : (
          <span className={classes.stopped} title={`No answer since ${new Date(stoppedAt).toLocaleTimeString()}`}>
            {" "}
            stopped
          </span>
        )}
      </dt>
      <dd>
        <span className={classes.value}>{value}</span>
        <span className={classes.of}>{more}</span>
      </dd>
    </div>
  );
}
