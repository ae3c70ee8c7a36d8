/**
 * Series of one job or of several: their metadata as the service gives it, their order and groups, and how their numbers
 * read.
 *
 * Nothing is derived from the words of a name: unit, kind, direction, group and axis are the service's.
 */
import type { SeriesSummary } from "@/api/generated";
import { bytes, duration, number } from "./format";

export type Metadata = Pick<SeriesSummary, "unit" | "kind" | "direction" | "group" | "axis" | "domain">;

export interface Described extends Metadata {
  name: string;
}

export interface SeriesGroup {
  name: string;
  series: readonly Described[];
}

/** What the service measures of machines while a job runs on them. */
export const SYSTEM = "system";
export const UNKNOWN: Metadata = {
  unit: "",
  kind: "number",
  direction: "none",
  group: "metrics",
  axis: "step",
  domain: [null, null],
};

/** By group, in the order in which their first series come. */
export function grouped(series: Iterable<Described>): SeriesGroup[] {
  const groups = new Map<string, Described[]>();
  for (const each of series) groups.set(each.group, [...(groups.get(each.group) ?? []), each]);
  return [...groups].map(([name, found]) => ({ name, series: found }));
}

/** Every word of the search is somewhere in the name, in any case and order. */
export function matches(metric: string, search: string): boolean {
  const name = metric.toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => name.includes(word));
}

/** A value as people read it, without the unit where the head of a chart or a column has it. */
export function figure(value: number, { kind, unit }: Pick<Metadata, "kind" | "unit">): string {
  if (!Number.isFinite(value)) return number(value);
  if (kind === "bytes") return `${bytes(value)}${unit === "bytes/s" ? "/s" : ""}`;
  if (kind === "percent") return `${number(value)} %`;
  if (kind === "seconds") return Math.abs(value) < 60 ? `${number(value)} s` : duration(value);
  return number(value);
}

/** A value with its unit. */
export function measured(value: number, metadata: Pick<Metadata, "kind" | "unit">): string {
  const text = figure(value, metadata);
  const isPlain = metadata.kind === "number" || metadata.kind === "count";
  return isPlain && metadata.unit !== "" && Number.isFinite(value) ? `${text} ${metadata.unit}` : text;
}

/** The unit beside an axis whose labels do not have it. */
export function axisUnit({ kind, unit }: Pick<Metadata, "kind" | "unit">): string {
  if (kind === "bytes") return unit === "bytes" ? "" : unit;
  return kind === "seconds" ? "" : unit;
}
