/** One device in a row: its use and memory, the job that holds it, the owner, and since when it is idle. */
import { Link } from "@tanstack/react-router";
import type { DeviceView, JobView } from "@/api/generated";
import { ago, duration, moment } from "@/lib/format";
import { ownerOf } from "@/lib/owner";
import classes from "./DeviceTable.module.css";
import { IDLE_PERCENT, IDLE_SECONDS, type Reading, STALE_SECONDS, type Use } from "./measured";
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

export function DeviceRow({ device, job, rank, use, now, isOpen, isLit, light }: Props) {
  const { job_id: holder, held, index } = device;
  if (holder === null) {
    return (
      <tr data-free={!held || undefined}>
        <th scope="row">{index}</th>
        <td className={classes.free} colSpan={5}>
          {held ? "a job of another project" : isOpen ? "free" : "held by no job"}
        </td>
        <td data-name="Idle since" className={classes.free}>
          {device.free_since == null ? null : (
            <time dateTime={device.free_since} title={`Free since ${moment(device.free_since)}`}>
              for {duration(Math.max(0, now - Date.parse(device.free_since)) / 1_000)}
            </time>
          )}
        </td>
      </tr>
    );
  }
  const isIdle = use !== null && use.idleSeconds >= IDLE_SECONDS;
  const owner = job === undefined ? null : ownerOf(job);
  return (
    <tr
      data-lit={isLit || undefined}
      data-idle={isIdle || undefined}
      onMouseEnter={() => light(holder)}
      onMouseLeave={() => light(null)}
      onFocus={() => light(holder)}
      onBlur={() => light(null)}
    >
      <th scope="row">{index}</th>
      <td data-name="Use">
        <UseCell use={use} device={device} rank={rank} now={now} />
      </td>
      <td data-name="Memory">
        {use?.memoryBytes == null ? null : <MemoryCell memory={use.memoryBytes} total={device.memory_bytes} />}
      </td>
      <td data-name="Heat">{use === null ? null : heat(use)}</td>
      <td className={classes.job}>
        <Link to="/jobs/$job" params={{ job: holder }}>
          {job?.name ?? `job …${holder.slice(-6)}`}
        </Link>{" "}
        <span className={classes.rank}>{rank === null ? "no rank on it" : `rank ${rank}`}</span>
      </td>
      <td data-name="Owner">
        {owner === null ? null : (
          <Link to="/jobs" search={{ owner }} title={`Jobs of ${owner}`}>
            {owner}
          </Link>
        )}
      </td>
      <td data-name="Idle since" className={classes.idle}>
        {isIdle && use.percent !== null ? <IdleSince last={use.percent.at} seconds={use.idleSeconds} /> : null}
      </td>
    </tr>
  );
}

function UseCell({ use, device, rank, now }: Pick<Props, "use" | "device" | "rank" | "now">) {
  if (use === null) return <>{rank !== null && device.kind !== "cpu" ? "not measured" : null}</>;
  const at = (use.percent ?? use.memoryBytes)?.at;
  if (at === undefined) return <>not measured yet</>;
  const measured = new Date(at * 1_000).toISOString();
  return (
    <>
      {use.percent === null ? null : (
        <>
          <Bar percent={use.percent.value} />
          {busyInWords(use.percent, device.kind)}
        </>
      )}
      {now / 1_000 - at > STALE_SECONDS ? (
        <time className={classes.old} dateTime={measured} title={moment(measured)}>
          measured {ago(measured, now)}
        </time>
      ) : null}
    </>
  );
}

function MemoryCell({ memory, total }: { memory: Reading; total: number | null }) {
  return (
    <>
      {total === null ? null : <Bar percent={(100 * memory.value) / total} />}
      {memoryInWords(memory, total)}
    </>
  );
}

function Bar({ percent }: { percent: number }) {
  return (
    <span className={classes.bar} aria-hidden>
      <span style={{ width: `${Math.min(100, percent)}%` }} />
    </span>
  );
}

function IdleSince({ last, seconds }: { last: number; seconds: number }) {
  const since = new Date((last - seconds) * 1_000).toISOString();
  return (
    <time dateTime={since} title={`Under ${IDLE_PERCENT} % since ${moment(since)}`}>
      idle for {duration(seconds)}
    </time>
  );
}

function heat({ celsius, watts }: Use): string {
  return [
    celsius === null ? "" : `${Math.round(celsius.value)} °C`,
    watts === null ? "" : `${Math.round(watts.value)} W`,
  ]
    .filter((part) => part !== "")
    .join(", ");
}
