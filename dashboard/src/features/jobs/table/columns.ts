/**
 * Columns of the list: those of each job, and by name those of its metrics and settings.
 *
 * A column is called as the service calls it (`gpus`, `metric:val/loss:min`, `setting:train.optimizer.lr`), so that it
 * can be asked for and sorted by.
 */
import type { JobView, ListedJob } from "@/api/generated";
import { ownerOf } from "@/lib/owner";
import { settingsOf } from "./settings";

export interface ColumnInfo {
  id: string;
  /** In the head. */
  label: string;
  /** The whole name where the label is short. */
  title?: string;
  /** Pixels. */
  width: number;
  isNumber?: boolean;
  /** The service's name of the order by it; none if it makes no order. */
  sort?: string;
  /** The largest first at the first press. */
  isLargestFirst?: boolean;
}

export const NAME: ColumnInfo = { id: "name", label: "Name", width: 252, sort: "name" };
const METRICS_AFTER = "curve";

/** In their order in the table. Metrics and settings are behind `METRICS_AFTER`. */
export const OF_JOBS: readonly ColumnInfo[] = [
  { id: "state", label: "State", width: 108, sort: "state" },
  { id: "progress", label: "Progress", width: 184, sort: "progress", isLargestFirst: true },
  { id: "left", label: "Left", title: "Time to the end, or the likely start", width: 104, isNumber: true },
  { id: "gpus", label: "GPUs", width: 60, isNumber: true, sort: "gpus", isLargestFirst: true },
  { id: "node", label: "Node", width: 92 },
  { id: METRICS_AFTER, label: "Metric", width: 164 },
  { id: "owner", label: "Owner", width: 104, sort: "owner" },
  { id: "project", label: "Project", width: 104, sort: "project" },
  { id: "labels", label: "Labels", width: 176 },
  { id: "note", label: "Note", width: 200 },
  { id: "kind", label: "Kind", width: 72, sort: "kind" },
  { id: "batch", label: "Batch", title: "ranks × samples × accumulation steps", width: 152 },
  { id: "priority", label: "Priority", width: 80, isNumber: true, sort: "priority", isLargestFirst: true },
  { id: "attempts", label: "Attempts", width: 84, isNumber: true, sort: "attempts", isLargestFirst: true },
  { id: "step", label: "Step", width: 88, isNumber: true, sort: "step", isLargestFirst: true },
  { id: "created", label: "Submitted", width: 92, sort: "created", isLargestFirst: true },
  { id: "started", label: "Started", width: 92, sort: "started", isLargestFirst: true },
  { id: "finished", label: "Ended", width: 92, sort: "finished", isLargestFirst: true },
  { id: "duration", label: "Duration", width: 104, isNumber: true, sort: "duration", isLargestFirst: true },
];
const PLACES = new Map(OF_JOBS.map(({ id }, place) => [id, place]));
const METRICS_PLACE = (PLACES.get(METRICS_AFTER) ?? 0) + 0.5;

export type Part = "last" | "min" | "max";
export const PARTS: Record<Part, string> = { last: "last", min: "lowest", max: "highest" };

/** Settings that become columns by themselves, at most; a longer text does not fit into one. */
const AUTOMATIC_MAX = 2;
const TEXT_MAX = 20;
/** What is asked for in one request. */
const ASKED_MAX = 30;

export function metricId(name: string, part: Part): string {
  return `metric:${name}:${part}`;
}

export function settingId(path: string): string {
  return `setting:${path}`;
}

/** Name and part of the metric of a column; null for another column. */
export function metricOf(id: string): { name: string; part: Part } | null {
  const [, name, part] = /^metric:(.+):(last|min|max)$/.exec(id) ?? [];
  return name === undefined ? null : { name, part: part as Part };
}

/** Those that the service is asked to give the values of, whatever their order in the table. */
export function askedOf(ids: readonly string[]): string[] {
  return ids
    .filter((id) => !PLACES.has(id))
    .slice(0, ASKED_MAX)
    .sort();
}

const placeOf = (id: string) => PLACES.get(id) ?? METRICS_PLACE;

/** The usual order. */
function inOrder(ids: readonly string[]): string[] {
  return [...ids].sort((a, b) => placeOf(a) - placeOf(b));
}

/** `ids` with one more, before the first that is behind it in the usual order. The name is no choice. */
export function withColumn(ids: readonly string[], id: string): string[] {
  if (ids.includes(id) || id === NAME.id) return [...ids];
  const place = ids.findIndex((each) => placeOf(each) > placeOf(id));
  return place < 0 ? [...ids, id] : ids.toSpliced(place, 0, id);
}

/** `ids` with `id` at another place. */
export function movedTo(ids: readonly string[], id: string, place: number): string[] {
  return ids.filter((each) => each !== id).toSpliced(place, 0, id);
}

/** The columns of a list that names none: what all rows share is none of them. */
export function usualIds(jobs: readonly JobView[]): string[] {
  const several = (of: (job: JobView) => unknown) => new Set(jobs.map(of)).size > 1;
  const hidden = new Set([
    ...["labels", "note", "kind", "batch", "priority", "attempts", "step", "created", "finished"],
    ...(several(ownerOf) ? [] : ["owner"]),
    ...(several(({ project }) => project) ? [] : ["project"]),
    ...(jobs.some(({ progress }) => progress?.main) ? [] : ["curve"]),
  ]);
  const shown = OF_JOBS.map(({ id }) => id).filter((id) => !hidden.has(id));
  return inOrder([...shown, ...automaticSettings(jobs).map(settingId)]);
}

/** Settings that at least half of the jobs have, and that differ; those that most have and that differ most come first. */
function automaticSettings(jobs: readonly JobView[]): string[] {
  return differingSettings(jobs)
    .filter(({ values, jobs: having }) => having * 2 >= jobs.length && values.every(({ length }) => length <= TEXT_MAX))
    .slice(0, AUTOMATIC_MAX)
    .map(({ path }) => path);
}

export interface Setting {
  path: string;
  /** Each once. */
  values: readonly string[];
  /** Jobs that have it. */
  jobs: number;
}

/** Every setting of the jobs. */
export function settingsIn(jobs: readonly JobView[]): Setting[] {
  const found = new Map<string, string[]>();
  for (const job of jobs) {
    for (const [path, value] of settingsOf(job.spec)) found.set(path, [...(found.get(path) ?? []), value]);
  }
  return [...found]
    .map(([path, values]) => ({ path, values: [...new Set(values)], jobs: values.length }))
    .sort((a, b) => b.jobs - a.jobs || b.values.length - a.values.length || (a.path < b.path ? -1 : 1));
}

/** Those with more than one value among the jobs that have them. */
export function differingSettings(jobs: readonly JobView[]): Setting[] {
  return settingsIn(jobs).filter(({ values }) => values.length > 1);
}

/** Names of the metrics that the jobs have reported, without those of the system. */
export function metricsIn(jobs: readonly JobView[]): string[] {
  const names = jobs.flatMap(({ progress }) => Object.keys(progress?.latest ?? {}));
  return [...new Set(names)].filter((name) => !name.startsWith("system/")).sort();
}

/** What the columns are called, and how the list is sorted by them. */
export function columnsOf(ids: readonly string[], jobs: readonly JobView[]): ColumnInfo[] {
  const short = shortNames(ids.flatMap((id) => (id.startsWith("setting:") ? [id.slice("setting:".length)] : [])));
  const main = mainOf(jobs);
  return ids.map((id) => {
    const known = OF_JOBS[PLACES.get(id) ?? -1];
    if (known?.id === METRICS_AFTER && main !== null) return { ...known, label: main, sort: metricId(main, "last") };
    if (known !== undefined) return known;
    const metric = metricOf(id);
    if (metric !== null) {
      const label = metric.part === "last" ? metric.name : `${metric.name} ${PARTS[metric.part]}`;
      return { id, label, title: `${metric.name}, ${PARTS[metric.part]} value`, width: 132, isNumber: true, sort: id };
    }
    const path = id.replace(/^setting:/, "");
    return { id, label: short.get(path) ?? path, title: path, width: 88, isNumber: true, sort: id };
  });
}

/** The main metric of all jobs that have one; null if they differ. */
export function mainOf(jobs: readonly JobView[]): string | null {
  const names = new Set(jobs.flatMap(({ progress }) => progress?.main ?? []));
  return names.size === 1 ? ([...names][0] ?? null) : null;
}

/** `lr` for `train.optimizer.lr`; longer where two paths end alike. */
function shortNames(paths: readonly string[]): Map<string, string> {
  const end = (path: string, parts: number) => path.split(".").slice(-parts).join(".");
  return new Map(
    paths.map((path) => {
      let parts = 1;
      while (
        end(path, parts) !== path &&
        paths.some((each) => each !== path && end(each, parts) === end(path, parts))
      ) {
        parts += 1;
      }
      return [path, end(path, parts)];
    }),
  );
}

/** Value of a job in a metric or a setting; undefined if it has none. */
export function valueIn(job: ListedJob, id: string): string | number | undefined {
  const values = job.values ?? {};
  const name = id.replace(/^setting:/, "");
  const key = id in values ? id : Object.keys(values).find((each) => isShort(name, each));
  return (key === undefined ? undefined : values[key]) ?? settingsOf(job.spec).get(name);
}

/** A column that was typed by a short name has its whole name in the answer. */
function isShort(name: string, key: string): boolean {
  return (
    key === `setting:${name}` || key.endsWith(`.${name}`) || key === `metric:${name}` || key === metricId(name, "last")
  );
}
