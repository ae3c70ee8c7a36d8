/** One device: the job that holds it is its border and its name, what the job uses of it is the fill and the numbers. */
import { Link } from "@tanstack/react-router";
import type { DeviceView, JobView } from "@/api/generated";
import { ago, duration } from "@/lib/format";
import classes from "./DeviceCell.module.css";
import { IDLE_PERCENT, IDLE_SECONDS, STALE_SECONDS, type Use } from "./measured";
import { busyInWords, memoryInWords } from "./words";

interface Props {
  device: DeviceView;
  /** The holder; undefined while it is not known. */
  job: JobView | undefined;
  rank: number | null;
  use: Use | null;
  now: number;
  /** Whether its node is given work. */
  isOpen: boolean;
  isLit: boolean;
  light: (job: string | null) => void;
}

export function DeviceCell({ device, job, rank, use, now, isOpen, isLit, light }: Props) {
  const { job_id: holder, held, index, kind } = device;
  if (holder === null) {
    return (
      <li className={classes.cell} data-free={held ? undefined : true}>
        <span className={classes.index}>{index}</span>
        <span className={classes.free}>{held ? "a job of another project" : isOpen ? "free" : "held by no job"}</span>
      </li>
    );
  }
  const isIdle = use !== null && use.idleSeconds >= IDLE_SECONDS;
  return (
    <li
      className={classes.cell}
      data-lit={isLit || undefined}
      data-idle={isIdle || undefined}
      onMouseEnter={() => light(holder)}
      onMouseLeave={() => light(null)}
      onFocus={() => light(holder)}
      onBlur={() => light(null)}
    >
      {use?.percent == null ? null : (
        <span className={classes.fill} aria-hidden style={{ width: `${Math.min(100, use.percent.value)}%` }} />
      )}
      <span className={classes.index}>{index}</span>
      <Link to="/jobs/$job" params={{ job: holder }} className={classes.job}>
        {job?.name ?? `job …${holder.slice(-6)}`}
      </Link>
      <span className={classes.rank}>{rank === null ? "no rank runs on it" : `rank ${rank}`}</span>
      {use === null ? null : <Figures use={use} device={device} now={now} />}
      {isIdle ? (
        <span className={classes.idle}>
          idle: under {IDLE_PERCENT} % for {duration(use.idleSeconds)}
        </span>
      ) : null}
      {use === null && rank !== null && kind !== "cpu" ? <span className={classes.figures}>not measured</span> : null}
    </li>
  );
}

function Figures({ use, device, now }: { use: Use; device: DeviceView; now: number }) {
  const { percent, memoryBytes, watts, celsius } = use;
  if (percent === null && memoryBytes === null) return <span className={classes.figures}>not measured yet</span>;
  const at = (percent ?? memoryBytes)?.at ?? 0;
  const isOld = now / 1_000 - at > STALE_SECONDS;
  return (
    <>
      {percent === null ? null : <span className={classes.busy}>{busyInWords(percent, device.kind)}</span>}
      <span className={classes.figures}>
        {memoryBytes === null ? null : <span>{memoryInWords(memoryBytes, device.memory_bytes)}</span>}
        {celsius === null ? null : <span>{Math.round(celsius.value)} °C</span>}
        {watts === null ? null : <span>{Math.round(watts.value)} W</span>}
        {isOld ? <span>measured {ago(new Date(at * 1_000).toISOString(), now)}</span> : null}
      </span>
    </>
  );
}
