/** Cells of the list by column, each of one line. A cell that follows the clock is rendered alone. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { ListedJob } from "@/api/generated";
import { useClock } from "@/components/Clock";
import { StateBadge } from "@/components/StateBadge";
import { useNow } from "@/components/useNow";
import { WaitReason } from "@/components/WaitReason";
import { hasEnded } from "@/lib/ended";
import { ago, moment, number } from "@/lib/format";
import { ownerOf } from "@/lib/owner";
import { measured } from "@/lib/series";
import { changed } from "../view";
import classes from "./cells.module.css";
import { metricOf, valueIn } from "./columns";
import { Labels } from "./Labels";
import { useList } from "./list";
import { Marks } from "./Marks";
import { Sparkline } from "./Sparkline";
import { Star } from "./Star";
import { bestOf } from "./sparkline";
import { gpusOf, leftWords, mishap, planInShort, progressWords, ranFor, reached, span } from "./words";

interface CellProps {
  job: ListedJob;
}

const CELLS: Record<string, (props: CellProps) => ReactNode> = {
  name: Name,
  state: State,
  progress: Progress,
  left: Left,
  gpus: ({ job }) => gpusOf(job),
  node: Node,
  curve: Curve,
  owner: Owner,
  project: Project,
  labels: ({ job }) => <Labels job={job} />,
  note: ({ job }) => <span title={job.note ?? undefined}>{job.note}</span>,
  kind: ({ job }) => job.kind,
  batch: ({ job }) =>
    job.plan === null ? null : <span title={job.plan_sentence ?? undefined}>{planInShort(job.plan)}</span>,
  priority: ({ job }) => job.priority,
  attempts: ({ job }) => job.attempt?.number ?? 0,
  step: ({ job }) => (job.progress === null ? null : number(job.progress.step)),
  created: ({ job }) => <When iso={job.created_at} />,
  started: ({ job }) => <When iso={job.started_at} />,
  finished: ({ job }) => <When iso={job.finished_at} />,
  duration: Duration,
};

export function Cell({ id, job }: { id: string; job: ListedJob }) {
  const Known = CELLS[id];
  return Known === undefined ? <Value id={id} job={job} /> : <Known job={job} />;
}

function Name({ job }: CellProps) {
  const { hasLabels } = useList();
  return (
    <span className={classes.name}>
      <Star job={job} />
      <Link to="/jobs/$job" params={{ job: job.id }} title={job.name} className={classes.link}>
        {job.name}
      </Link>
      {hasLabels ? null : <Labels job={job} />}
      <Marks job={job} />
    </span>
  );
}

function State({ job }: CellProps) {
  const attempts = job.attempt?.number ?? 0;
  return (
    <>
      <StateBadge state={job.state} isPlain />
      {job.intent === null || hasEnded(job) ? null : <span className={classes.soft}> · {job.intent} asked</span>}
      {attempts > 1 ? (
        <span className={classes.soft} title={`attempt ${attempts}`}>
          {" "}
          ×{attempts}
        </span>
      ) : null}
    </>
  );
}

/** How far a running job is, why another one waits or has failed, or where it ended. */
export function Progress({ job }: CellProps) {
  const found = mishap(job);
  if (found !== null || job.state === "queued") {
    return (
      <span className={classes.soft} title={found?.message}>
        {found === null ? null : <strong className={classes.bad}>{found.reason}</strong>}{" "}
        {job.state === "queued" ? <Waits job={job} /> : found?.message}
      </span>
    );
  }
  const words = progressWords(job);
  if (job.state !== "running") {
    return <span className={classes.soft}>{reached(job) ?? (hasEnded(job) ? null : job.reason)}</span>;
  }
  if (words === null) return null;
  if (words.share === null) return <span className={classes.soft}>{words.steps}</span>;
  return (
    <span className={classes.progress} title={words.steps}>
      <span className={classes.bar} aria-hidden>
        <span style={{ width: `${100 * words.share}%` }} />
      </span>
      <span className={classes.percent}>{words.percent}</span>
    </span>
  );
}

function Waits({ job }: CellProps) {
  const { names } = useList();
  if (job.queue === null) return job.reason;
  return (
    <>
      <span className={classes.position}>#{job.queue.position}</span>{" "}
      <WaitReason reason={job.queue.reason} nameOf={(id) => names.get(id)} />
    </>
  );
}

export function Left({ job }: CellProps) {
  const words = leftWords(job, useClock().now);
  return words === null ? null : <span title={words.title}>{words.text}</span>;
}

function Node({ job }: CellProps) {
  const [first, ...more] = job.attempt?.nodes ?? [];
  if (first === undefined) return null;
  return (
    <span title={[first, ...more].join(", ")}>
      {first}
      {more.length === 0 ? null : ` +${more.length}`}
    </span>
  );
}

/** The main series of a job: its curve, the last value, and in the hint the best one if it has a direction. */
function Curve({ job }: CellProps) {
  const { series, main } = useList();
  const name = job.progress?.main;
  if (!name) return null;
  const found = series.get(job.id);
  const form = { unit: found?.unit ?? "", kind: found?.kind ?? "number" };
  const last = measured(Number(job.progress?.latest?.[name]), form);
  const best = found === undefined ? null : bestOf(found);
  const title = `${name}: last ${last}${best === null ? "" : `, best ${measured(best, form)}`}`;
  return (
    <span className={classes.curve} title={title}>
      {found === undefined ? <span className={classes.blank} /> : <Sparkline series={found} />}
      <span>{last}</span>
      {main === null ? <span className={classes.soft}>{name}</span> : null}
    </span>
  );
}

function Value({ id, job }: CellProps & { id: string }) {
  const value = valueIn(job, id);
  if (value === undefined) return null;
  // A setting is shown as it was written.
  if (metricOf(id) === null || typeof value === "string") return <span title={String(value)}>{value}</span>;
  return number(value);
}

function Owner({ job }: CellProps) {
  const { view } = useList();
  const owner = ownerOf(job);
  if (owner === null) return null;
  return (
    <Link to="/jobs" search={changed(view, { owner })} title={`Jobs of ${owner}`} className={classes.quiet}>
      {owner}
    </Link>
  );
}

function Project({ job: { project } }: CellProps) {
  const { view } = useList();
  return (
    <Link to="/jobs" search={changed(view, { project })} title={`Jobs of project ${project}`} className={classes.quiet}>
      {project}
    </Link>
  );
}

function When({ iso }: { iso: string | null }) {
  const now = useNow(WHEN_SECONDS);
  if (iso === null) return null;
  return (
    <time dateTime={iso} title={moment(iso)}>
      {ago(iso, Math.max(now, Date.parse(iso)))}
    </time>
  );
}

/** Fifty ages that change each second are more than a reader needs. */
const WHEN_SECONDS = 10;

function Duration({ job }: CellProps) {
  const { now } = useClock();
  const ran = ranFor(job, now);
  return ran === null ? null : <span title={durationTitle(job, now)}>{ran}</span>;
}

function durationTitle(job: ListedJob, now: number): string {
  const ended = job.finished_at === null ? "" : `, ended ${moment(job.finished_at)}`;
  return `${span(job, now)}${job.started_at === null ? "" : `, started ${moment(job.started_at)}`}${ended}`;
}
