/** Curves placed on a chart: what is drawn where, how far the axes go, and what is under the cursor. */
import { type Axis, isTime, type PerStep, unitsPerStep } from "./axes";
import { type Curve, firstAtLeast, nearestIndex, supersededFrom, xOf } from "./curves";
import { smooth } from "./smoothing";

/** One attempt of one job. */
export interface Line {
  job: string;
  name: string;
  slot: number;
  curve: Curve;
  x: Float64Array;
  /** Null where there is no smoothing. */
  smoothed: Float64Array | null;
  /** From this index on, a later attempt ran the steps again. */
  end: number;
  /** Another attempt was before it. */
  isRestart: boolean;
  /** When the job began, in seconds since the epoch. */
  origin: number;
  /** The mean of a group of jobs, with their range. */
  isMean?: boolean;
}

interface Source {
  job: string;
  name: string;
  slot: number;
  startedAt: number | null;
  perStep?: PerStep;
  curves: readonly Curve[];
}

/** `range` bounds what smoothing looks at. */
export function linesOf(
  sources: readonly Source[],
  axis: Axis,
  weight: number,
  range: readonly [number, number] | null = null,
): Line[] {
  return sources.flatMap(({ job, name, slot, startedAt, perStep = {}, curves }) => {
    const first = Math.min(...curves.map((curve) => curve.time[0] ?? Number.POSITIVE_INFINITY));
    const origin = startedAt === null ? first : Math.min(startedAt, first);
    const units = unitsPerStep(axis, perStep) ?? (axis === "fraction" ? 1 / lastStepOf(curves) : 1);
    const until = supersededFrom(curves);
    const earliest = Math.min(...curves.map((curve) => curve.attempt));
    return curves.map((curve, index) => ({
      job,
      name,
      slot,
      curve,
      x: neverBack(xOf(curve, axis, origin, units)),
      smoothed: weight > 0 ? smooth(curve.value, weight, curve.span ?? undefined, range) : null,
      end: until[index] as number,
      isRestart: curve.attempt > earliest,
      origin,
    }));
  });
}

/** 1 at least, so that a part of it is a number. */
function lastStepOf(curves: readonly Curve[]): number {
  return Math.max(1, ...curves.map(({ step }) => step[step.length - 1] ?? 0));
}

/** A clock that was set back stands still until it has caught up: places on an axis ascend, or nothing finds them. */
function neverBack(x: Float64Array): Float64Array {
  let isFine = true;
  for (let index = 1; index < x.length && isFine; index += 1) isFine = (x[index] as number) >= (x[index - 1] as number);
  if (isFine) return x;
  let furthest = Number.NEGATIVE_INFINITY;
  return x.map((value) => {
    furthest = Math.max(furthest, value);
    return furthest;
  });
}

/** From the first place to the last; null of none. A single place gets room on both sides. */
export function extentOfX(lines: readonly Line[]): [number, number] | null {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const { x } of lines) {
    if (x.length === 0) continue;
    low = Math.min(low, x[0] as number);
    high = Math.max(high, x[x.length - 1] as number);
  }
  if (!(high >= low)) return null;
  return high > low ? [low, high] : [low - 0.5, high + 0.5];
}

/** Which indices of `x` lie between the bounds, one more on each side, so that lines go on over the edge. */
export function window(x: ArrayLike<number>, from: number, to: number): [number, number] {
  const first = Math.max(0, firstAtLeast(x, from) - 1);
  let last = firstAtLeast(x, to);
  while (last < x.length && (x[last] as number) <= to) last += 1;
  return [first, Math.min(x.length, last + 1)];
}

/** The finite extremes of what is drawn between the bounds: of all points, so that no spike is cut off. NaN of none. */
export function extentOfY(lines: readonly Line[], from: number, to: number, isLog: boolean): [number, number] {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  const see = (value: number) => {
    if (!Number.isFinite(value) || (isLog && value <= 0)) return;
    if (value < low) low = value;
    if (value > high) high = value;
  };
  const look = (isInside: (x: number) => boolean) => {
    for (const { x, curve } of lines) {
      const [first, last] = window(x, from, to);
      for (let index = first; index < last; index += 1) {
        if (!isInside(x[index] as number)) continue;
        see(curve.min[index] as number);
        see(curve.max[index] as number);
        see(curve.value[index] as number);
      }
    }
  };
  look((x) => x >= from && x <= to);
  // Between two places there is only the line from one to the other.
  if (low > high) look(() => true);
  return low > high ? [Number.NaN, Number.NaN] : [low, high];
}

/** Neither a place lies between the bounds, nor a line from one before them to one after. */
export function isNothingBetween(lines: readonly Line[], from: number, to: number): boolean {
  return lines.every(({ x }) => {
    const after = firstAtLeast(x, from);
    return after === x.length || (after === 0 && (x[0] as number) > to);
  });
}

export interface Reading {
  line: Line;
  index: number;
}

/**
 * Of each job the place nearest to `x`, unless its line ends more than `reach` before or begins more than that after.
 *
 * Along steps, what was run again is read as the later attempt ran it; along time the two lie apart, and each is read.
 */
export function readingsAt(lines: readonly Line[], x: number, reach: number, axis: Axis): Reading[] {
  const nearest = new Map<string, Reading & { distance: number }>();
  for (const line of lines) {
    const end = isTime(axis) ? line.x.length : line.end;
    const index = nearestIndex(line.x, x, end);
    if (index === -1) continue;
    const distance = Math.abs((line.x[index] as number) - x);
    const isBeyond = x < (line.x[0] as number) - reach || x > (line.x[end - 1] as number) + reach;
    const found = nearest.get(line.job);
    if (!isBeyond && (found === undefined || distance < found.distance))
      nearest.set(line.job, { line, index, distance });
  }
  return [...nearest.values()];
}

/** The steps that lie between two places of an axis, over all lines, and one place more on each side. */
export function stepsBetween(lines: readonly Line[], from: number, to: number): { from: number; to: number } | null {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const { x, curve } of lines) {
    const [first, last] = window(x, from, to);
    if (first >= last) continue;
    low = Math.min(low, curve.step[first] as number);
    high = Math.max(high, curve.step[last - 1] as number);
  }
  return high >= low ? { from: low, to: high } : null;
}
