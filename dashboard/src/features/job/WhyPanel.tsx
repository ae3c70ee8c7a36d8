/** Why a job waits: the reason, its place, its start, and the jobs ahead of it. */
import { Link } from "@tanstack/react-router";
import type { JobView, WhyView } from "@/api/generated";
import { useClock } from "@/components/Clock";
import { Panel } from "@/components/Panel";
import { useNameIn } from "@/components/useNameIn";
import { useNow } from "@/components/useNow";
import { WaitReason } from "@/components/WaitReason";
import { duration, number } from "@/lib/format";
import { counted } from "@/lib/resources";
import { startWords } from "@/lib/starting";
import { useWhy } from "./job-queries";
import classes from "./WhyPanel.module.css";

/** A longer list is closed at first. */
const OPEN_MAX = 5;

export function WhyPanel({ job }: { job: JobView }) {
  const now = useNow();
  const clock = useClock();
  const { data: why } = useWhy(job);
  const { queue } = job;
  const reason = queue?.reason ?? job.reason ?? "";
  const nameOf = useNameIn(reason);
  const start = queue === null ? null : startWords(queue, clock.now);
  return (
    <Panel className={classes.panel} title="Why it waits">
      <p className={classes.reason}>
        <WaitReason reason={sentence(reason)} nameOf={nameOf} />
      </p>
      <dl className={classes.figures}>
        {queue === null ? null : <Figure name="Place in the queue" value={number(queue.position)} />}
        {start === null ? null : (
          <Figure name="Estimated start" value={start.when} more={start.more === "" ? "" : `, ${start.more}`} />
        )}
        <Figure name="Submitted" value={`${duration((now - Date.parse(job.created_at)) / 1_000)} ago`} />
      </dl>
      {why?.start == null || queue?.estimated_start != null ? null : (
        <p className={classes.more}>{sentence(why.start)}.</p>
      )}
      {why === undefined || why.ahead_count === 0 ? null : <Ahead why={why} />}
      <Link to="/queue" className={classes.more}>
        The whole queue
      </Link>
    </Panel>
  );
}

function Figure({ name, value, more = "" }: { name: string; value: string; more?: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <span className={classes.value}>{value}</span>
        <span className={classes.of}>{more}</span>
      </dd>
    </div>
  );
}

/** The first of them, as far as one may read them, and the number of the others. */
function Ahead({ why: { ahead, ahead_count: count } }: { why: WhyView }) {
  const others = count - ahead.length;
  const sum = count === 1 ? "1 job is ahead of it" : `${number(count)} jobs are ahead of it`;
  if (ahead.length === 0) return <p className={classes.more}>{sum}.</p>;
  return (
    <details className={classes.ahead} open={ahead.length <= OPEN_MAX}>
      <summary>{sum}</summary>
      <ul>
        {ahead.map(({ id, name, project, owner, devices, position }) => (
          <li key={id}>
            <span className={classes.place}>{position}</span>
            <span>
              <Link to="/jobs/$job" params={{ job: id }}>
                {name}
              </Link>{" "}
              <span className={classes.of}>
                {counted(devices, "device")}, {project}
                {owner === "" ? "" : `, by ${owner}`}
              </span>
            </span>
          </li>
        ))}
        {others === 0 ? null : <li className={classes.of}>and {counted(others, "more job")}</li>}
      </ul>
    </details>
  );
}

function sentence(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
