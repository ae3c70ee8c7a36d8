/** One job of the list. */
import { Link } from "@tanstack/react-router";
import { memo } from "react";
import type { JobView, QueuePlace, SeriesView } from "@/api/generated";
import { useClock } from "@/components/Clock";
import { StateBadge } from "@/components/StateBadge";
import { useNow } from "@/components/useNow";
import { WaitReason } from "@/components/WaitReason";
import { hasEnded } from "@/lib/ended";
import { ago, moment } from "@/lib/format";
import { ownerOf } from "@/lib/owner";
import { measured } from "@/lib/series";
import { startSentence, startWords } from "@/lib/starting";
import classes from "./JobTable.module.css";
import { Sparkline } from "./Sparkline";
import { bestOf } from "./sparkline";
import { changed, type JobsView } from "./view";
import { mishap, planInShort, progressWords, span } from "./words";

interface Props {
  job: JobView;
  /** The main series. */
  series: SeriesView | undefined;
  view: JobsView;
  isChosen: boolean;
  isAtCursor: boolean;
  choose: (jobs: readonly JobView[], isChosen: boolean) => void;
  names: ReadonlyMap<string, string>;
}

/** Remembered: each second concerns one or two cells of a row, which follow the time themselves. */
export const JobRow = memo(function JobRow({ job, series, view, isChosen, isAtCursor, choose, names }: Props) {
  const attempts = job.attempt?.number ?? 0;
  const owner = ownerOf(job);
  return (
    <tr
      data-row={job.id}
      aria-current={isAtCursor ? "true" : undefined}
      className={isChosen ? classes.chosen : undefined}
    >
      <td className={classes.choose}>
        <input
          type="checkbox"
          aria-label={`Select ${job.name}`}
          checked={isChosen}
          onChange={(event) => choose([job], event.target.checked)}
        />
      </td>
      <td className={classes.state}>
        <StateBadge state={job.state} />
        {job.intent === null || hasEnded(job) ? null : <div className={classes.second}>{job.intent} asked</div>}
        {attempts > 1 ? (
          <div className={classes.second}>
            <Link to="/jobs/$job" params={{ job: job.id }} search={{ tab: "timeline" }} className={classes.quiet}>
              attempt {attempts}
            </Link>
          </div>
        ) : null}
      </td>
      <th scope="row" className={classes.job}>
        <Link to="/jobs/$job" params={{ job: job.id }} className={classes.name}>
          {job.name}
        </Link>
        <div className={classes.marks}>
          <Link to="/jobs" search={changed(view, { project: job.project })} title={`Jobs of project ${job.project}`}>
            {job.project}
          </Link>
          {owner === null ? null : (
            <Link to="/jobs" search={changed(view, { owner })} title={`Jobs of ${owner}`} className={classes.owner}>
              by {owner}
            </Link>
          )}
          {Object.entries(job.labels).map(([key, value]) => (
            <Link
              key={key}
              to="/jobs"
              search={changed(view, { label: `${key}=${value}` })}
              title={`Jobs with ${key}=${value}`}
            >
              {key}={value}
            </Link>
          ))}
        </div>
      </th>
      <td className={classes.progress}>
        <Progress job={job} />
        {job.queue === null ? null : (
          <div className={classes.waits}>
            <span className={classes.position}>#{job.queue.position}</span>{" "}
            <WaitReason reason={job.queue.reason} nameOf={(id) => names.get(id)} />
            {job.queue.estimated_start ? <Start queue={job.queue} /> : null}
          </div>
        )}
        {job.queue === null && job.state === "queued" && job.reason ? (
          <div className={classes.waits}>{job.reason}</div>
        ) : null}
        <Mishap job={job} />
      </td>
      <td className={job.plan === null ? classes.kind : classes.plan}>
        {job.plan === null ? job.kind : <span title={job.plan_sentence ?? undefined}>{planInShort(job.plan)}</span>}
      </td>
      <td className={classes.loss}>
        <Main job={job} series={series} />
      </td>
      <td className={classes.age}>
        <Age job={job} />
      </td>
    </tr>
  );
});

function Age({ job }: { job: JobView }) {
  const now = useNow();
  const clock = useClock();
  return (
    <>
      <time dateTime={job.created_at} title={`submitted ${moment(job.created_at)}`}>
        {ago(job.created_at, now)}
      </time>
      <div className={classes.second}>{span(job, clock.now)}</div>
    </>
  );
}

function Start({ queue }: { queue: QueuePlace }) {
  return <span className={classes.start}>starts {startSentence(startWords(queue, useClock().now))}</span>;
}

function Progress({ job }: { job: JobView }) {
  const words = progressWords(job);
  if (words === null) return null;
  const { share, steps, percent, left } = words;
  return (
    <div className={classes.figures}>
      {share === null ? null : (
        <div className={classes.bar} aria-hidden>
          <div style={{ width: `${100 * share}%` }} data-live={job.state === "running"} />
        </div>
      )}
      <span>{steps}</span>
      {percent === null ? null : <span>{percent}</span>}
      {left === null ? null : <span>{left}</span>}
    </div>
  );
}

function Mishap({ job }: { job: JobView }) {
  const found = mishap(job);
  if (found === null) return null;
  return (
    <div className={classes.mishap} title={found.message}>
      <strong>{found.reason}</strong> {found.message}
    </div>
  );
}

/** The main series of a job: its curve, the last value, and the best one if it has a direction. */
function Main({ job, series }: { job: JobView; series: SeriesView | undefined }) {
  const name = job.progress?.main;
  if (!name) return null;
  const last = Number(job.progress?.latest?.[name]);
  const form = { unit: series?.unit ?? "", kind: series?.kind ?? "number" };
  const best = series === undefined ? null : bestOf(series);
  const below = [best === null ? [] : [`best ${measured(best, form)}`], name === "train/loss" ? [] : [name]].flat();
  return (
    <div className={classes.curve}>
      {series === undefined ? <span className={classes.blank} /> : <Sparkline series={series} />}
      <span className={classes.values}>
        <span title={`last ${name}`}>{measured(last, form)}</span>
        {below.length === 0 ? null : (
          <span className={classes.second} title={below.join(" · ")}>
            {below.join(" · ")}
          </span>
        )}
      </span>
    </div>
  );
}
