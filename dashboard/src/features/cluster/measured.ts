/**
 * What a device is used for, read from the series that its holder's agent writes every ten seconds.
 *
 * A job's ranks lie on its nodes in the order of `attempt.nodes`, equally many on each, and on a node on the devices that
 * the job holds there, by index. With that a device's series is `system/rank<R>/…` of its holder.
 */
import type { DeviceView, JobView, NodeView, SeriesView } from "@/api/generated";

export interface Reading {
  value: number;
  /** Seconds since the epoch. */
  at: number;
}

export interface Use {
  /** Percent: of the GPU, or of one core of the CPU, where a rank may take several. */
  percent: Reading | null;
  memoryBytes: Reading | null;
  watts: Reading | null;
  celsius: Reading | null;
  /** For how long, up to the last sample, `percent` never reached `IDLE_PERCENT`. */
  idleSeconds: number;
}

/** Below this a device is not used. */
export const IDLE_PERCENT = 5;
/** A device that is not used for so long is said to be idle: pauses for data, evaluation or a checkpoint are shorter. */
export const IDLE_SECONDS = 300;
/** Samples come every ten seconds; what is older than this is not how it is now. */
export const STALE_SECONDS = 60;

interface Names {
  percent: string;
  memory: string;
  watts?: string;
  celsius?: string;
}
const OF_SLOT: Names = { percent: "cpu_percent", memory: "rss_bytes" };
/** Of every device that has a driver. */
const OF_DEVICE: Names = {
  percent: "gpu_utilization_percent",
  memory: "gpu_memory_bytes",
  watts: "gpu_power_watts",
  celsius: "gpu_temperature_celsius",
};

function namesOf(kind: string): Names {
  return kind === "cpu" ? OF_SLOT : OF_DEVICE;
}

/** The rank that runs on a device; null where none does: before the ranks are there, or beyond the last of them. */
export function rankOn(job: JobView, node: NodeView, index: number): number | null {
  const { attempt } = job;
  if (attempt === null || attempt.state === "ended") return null;
  const nodeRank = attempt.nodes.indexOf(node.name);
  const ranksPerNode = attempt.world_size / attempt.nodes.length;
  const held = node.devices.filter((device) => device.job_id === job.id).map((device) => device.index);
  const place = held.sort((a, b) => a - b).indexOf(index);
  return nodeRank === -1 || place === -1 || place >= ranksPerNode ? null : nodeRank * ranksPerNode + place;
}

/** Names of all series that tell of these nodes, and the jobs that have them. */
export function seriesAsked(nodes: readonly NodeView[], jobs: ReadonlyMap<string, JobView>) {
  const names = new Set<string>();
  const holders = new Set<string>();
  for (const node of nodes) {
    for (const device of node.devices) {
      const job = device.job_id === null ? undefined : jobs.get(device.job_id);
      const rank = job === undefined ? null : rankOn(job, node, device.index);
      if (job === undefined || rank === null) continue;
      holders.add(job.id);
      for (const name of Object.values(namesOf(device.kind))) names.add(`system/rank${rank}/${name}`);
      for (const name of ["cpu_percent", "memory_bytes"]) names.add(`system/node${nodeRank(job, node)}/${name}`);
    }
  }
  return { jobs: [...holders].sort(), names: [...names].sort() };
}

/** What `rank` takes of its device, of all series of its job. */
export function takenBy(job: JobView, rank: number, kind: DeviceView["kind"], series: readonly SeriesView[]): Use {
  const names = namesOf(kind);
  const of = (name: string | undefined) => series.find((one) => one.name === `system/rank${rank}/${name}`);
  const percent = of(names.percent);
  return {
    percent: newest(job, percent),
    memoryBytes: newest(job, of(names.memory)),
    watts: newest(job, of(names.watts)),
    celsius: newest(job, of(names.celsius)),
    idleSeconds: percent === undefined ? 0 : idleSeconds(percent, startOf(job)),
  };
}

/** The newest sample of the whole machine by any job on it: each of them measures the same. */
export function machineOf(
  node: NodeView,
  jobs: ReadonlyMap<string, JobView>,
  series: ReadonlyMap<string, readonly SeriesView[]>,
): { percent: Reading | null; memoryBytes: Reading | null } {
  const holders = new Set(node.devices.flatMap((device) => device.job_id ?? []));
  const newestOf = (name: string) => {
    const readings = [...holders].flatMap((id) => {
      const job = jobs.get(id);
      if (job === undefined) return [];
      const full = `system/node${nodeRank(job, node)}/${name}`;
      return (
        newest(
          job,
          series.get(id)?.find((one) => one.name === full),
        ) ?? []
      );
    });
    return readings.reduce<Reading | null>((last, one) => (last === null || one.at > last.at ? one : last), null);
  };
  return { percent: newestOf("cpu_percent"), memoryBytes: newestOf("memory_bytes") };
}

/**
 * For how long, up to the last point, every value was below `IDLE_PERCENT`; points before `from` do not count.
 *
 * A bucket is idle if its largest value is. It counts from its last point, the only one whose time is known, so that the
 * answer is never more than the truth, and exact where a bucket is one point.
 */
export function idleSeconds(points: Pick<SeriesView, "time" | "max" | "value">, from: number): number {
  const last = points.time.length - 1;
  let first = last + 1;
  while (first > 0 && (points.time[first - 1] ?? 0) >= from && isIdle(points, first - 1)) first -= 1;
  return first > last ? 0 : (points.time[last] ?? 0) - (points.time[first] ?? 0);
}

function isIdle({ value, max }: Pick<SeriesView, "max" | "value">, place: number): boolean {
  // A bucket with a value that is no number is not known to be idle.
  return Number(max[place]) < IDLE_PERCENT && !Number.isNaN(Number(value[place]));
}

/** The last point of a series, where it is of the job's live attempt. */
function newest(job: JobView, series: SeriesView | undefined): Reading | null {
  const at = series?.time.at(-1);
  const value = Number(series?.value.at(-1));
  return at === undefined || !Number.isFinite(value) || at < startOf(job) ? null : { value, at };
}

function startOf(job: JobView): number {
  return job.attempt === null ? Number.POSITIVE_INFINITY : Date.parse(job.attempt.created_at) / 1_000;
}

function nodeRank(job: JobView, node: NodeView): number {
  return job.attempt?.nodes.indexOf(node.name) ?? -1;
}
