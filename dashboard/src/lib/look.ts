/**
 * How charts are looked at, as an address keeps it: `?smoothing=0.6&axis=wall&log=train/loss&zoom=step:10:200`.
 *
 * What is usual is left out. An address belongs to a view: every user sees the same, and nobody's default changes.
 */
import { AXES, type Axis } from "./axes";
import { asList, listed } from "./listed";
import type { Zoom } from "./zoom";

export interface Look {
  /** Left out where it is off. */
  smoothing?: number;
  /** Left out where it is the step, except in a usual look that is chosen over a user's default. */
  axis?: Axis;
  /** Metrics on a logarithmic axis. */
  log?: string | string[];
  /** Metrics whose outliers are clipped. */
  clip?: string | string[];
  /** `step:10:200`: the part of an axis that is shown. */
  zoom?: string | string[];
  /** `train/loss:0:2`: the range of a metric's y axis. */
  y?: string | string[];
}

/** The same as a person chooses it. */
export interface Chosen {
  smoothing: number;
  axis: Axis;
  logarithmic: readonly string[];
  clipped: readonly string[];
  zooms: Readonly<Partial<Record<Axis, Zoom>>>;
  /** By metric. */
  ranges: Readonly<Record<string, Zoom>>;
}

/** The part that a user can make the default. */
export type DefaultLook = Pick<Chosen, "smoothing" | "axis" | "logarithmic" | "clipped">;

export const USUAL: DefaultLook = { smoothing: 0, axis: "step", logarithmic: [], clipped: [] };

/** The usual look, written so that an address is not plain. */
export const CHOSEN_USUAL: Look = { axis: "step" };

/** An address of a page has room for so many, and nobody looks at more. */
const LIST_MAX = 50;

export function readLook(search: Record<string, unknown>): Look {
  const { smoothing, axis, log, clip, zoom, y } = search;
  const known = AXES.find((name) => name === axis);
  const look = lookOf({
    smoothing: typeof smoothing === "number" && smoothing > 0 && smoothing < 1 ? smoothing : 0,
    axis: known ?? "step",
    logarithmic: listed(log),
    clipped: listed(clip),
    zooms: zoomsIn(zoom),
    ranges: rangesIn(y),
  });
  return known === "step" && isPlain(look) ? CHOSEN_USUAL : look;
}

export function lookOf({ smoothing, axis, logarithmic, clipped, zooms, ranges }: Chosen): Look {
  const log = asList(logarithmic.slice(0, LIST_MAX));
  const clip = asList(clipped.slice(0, LIST_MAX));
  const zoom = asList(Object.entries(zooms).map(([name, part]) => written(name, part)));
  const y = asList(
    Object.entries(ranges)
      .slice(0, LIST_MAX)
      .map(([name, part]) => written(name, part)),
  );
  return {
    ...(smoothing === 0 ? {} : { smoothing }),
    ...(axis === "step" ? {} : { axis }),
    ...(log === undefined ? {} : { log }),
    ...(clip === undefined ? {} : { clip }),
    ...(zoom === undefined ? {} : { zoom }),
    ...(y === undefined ? {} : { y }),
  };
}

export function chosenIn({ smoothing, axis, log, clip, zoom, y }: Look): Chosen {
  return {
    smoothing: smoothing ?? 0,
    axis: axis ?? "step",
    logarithmic: listed(log),
    clipped: listed(clip),
    zooms: zoomsIn(zoom),
    ranges: rangesIn(y),
  };
}

/** Two looks with the same key show the same. */
export function keyOf(look: Look): string {
  return JSON.stringify(chosenIn(look));
}

export function isSameLook(a: Look, b: Look): boolean {
  return keyOf(a) === keyOf(b);
}

/** True for an address without any look. */
export function isPlain(look: Look): boolean {
  return Object.values(look).every((value) => value === undefined);
}

/** A moment of the clock has ten digits before its point; the parts of a millisecond show in no chart. */
function written(name: string, { from, to }: Zoom): string {
  return [name, ...[from, to].map((value) => Number(value.toPrecision(13)))].join(":");
}

function partsIn(value: unknown): [string, Zoom][] {
  return listed(value).flatMap((text) => {
    const [, name, from, to] = /^(.+):([^:]+):([^:]+)$/.exec(text) ?? [];
    const part = { from: Number(from), to: Number(to) };
    return name !== undefined && Number.isFinite(part.from) && part.to > part.from && Number.isFinite(part.to)
      ? [[name, part]]
      : [];
  });
}

function zoomsIn(value: unknown): Partial<Record<Axis, Zoom>> {
  return Object.fromEntries(partsIn(value).filter(([name]) => (AXES as readonly string[]).includes(name)));
}

function rangesIn(value: unknown): Record<string, Zoom> {
  return Object.fromEntries(partsIn(value));
}
