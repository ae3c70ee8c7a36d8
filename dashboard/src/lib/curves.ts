/**
 * Curves: a series' points, or buckets of them, of one attempt, as numbers that can be drawn.
 *
 * Nothing is lost on the way: NaN and the infinities come as names and leave as numbers, a bucket keeps its extremes, and
 * what a later attempt ran again stays, marked. Not here: smoothing, axes, drawing.
 */
import type { SeriesView } from "@/api/generated";
import type { Axis } from "./axes";

export interface Curve {
  name: string;
  unit: string;
  attempt: number;
  /** Points stored; more than `step.length` where they came as buckets. */
  count: number;
  /** Points whose value is not finite. */
  nonFinite: number;
  /** Points that a place stands for, on average, as they were first answered. */
  perPlace: number;
  step: Float64Array;
  /** Seconds since the epoch. */
  time: Float64Array;
  /** Last of each bucket, NaN if any value in it is. */
  value: Float64Array;
  min: Float64Array;
  max: Float64Array;
  /** Points that each place stands for, on average; several figures where a part is known more finely. */
  span: Float64Array | null;
}

/** From the API's answer. Places are put in order of their step, where a script reported them in another. */
export function curveOf(view: SeriesView): Curve {
  const curve: Curve = {
    name: view.name,
    unit: view.unit,
    attempt: view.attempt,
    count: view.count,
    nonFinite: view.non_finite ?? 0,
    perPlace: view.step.length === 0 ? 1 : view.count / view.step.length,
    step: numbers(view.step),
    time: numbers(view.time),
    value: numbers(view.value),
    min: numbers(view.min),
    max: numbers(view.max),
    span: null,
  };
  return isAscending(curve.step) ? curve : reordered(curve);
}

/** A loop, because `Float64Array.from` takes ten times as long, and twenty jobs bring a hundred thousand numbers at once. */
function numbers(values: readonly (number | string)[]): Float64Array {
  const found = new Float64Array(values.length);
  for (let index = 0; index < values.length; index += 1) found[index] = Number(values[index]);
  return found;
}

function isAscending(values: ArrayLike<number>): boolean {
  for (let index = 1; index < values.length; index += 1)
    if ((values[index] as number) < (values[index - 1] as number)) return false;
  return true;
}

function reordered(curve: Curve): Curve {
  const order = Array.from(curve.step, (_, index) => index).sort(
    (a, b) => (curve.step[a] as number) - (curve.step[b] as number) || a - b,
  );
  const pick = (column: Float64Array) => Float64Array.from(order, (index) => column[index] as number);
  return {
    ...curve,
    step: pick(curve.step),
    time: pick(curve.time),
    value: pick(curve.value),
    min: pick(curve.min),
    max: pick(curve.max),
    span: curve.span && pick(curve.span),
  };
}

/**
 * A curve with the points that came after it.
 *
 * The new places keep what they stand for, in units of one that was there before: so smoothing does not change where a
 * curve goes on with single points behind its buckets.
 */
export function appended(known: Curve, more: Curve): Curve {
  if (more.step.length === 0) return known;
  const join = (column: "step" | "time" | "value" | "min" | "max") => {
    const joined = new Float64Array(known[column].length + more[column].length);
    joined.set(known[column]);
    joined.set(more[column], known[column].length);
    return joined;
  };
  const step = join("step");
  const share = more.perPlace / known.perPlace;
  const isEven = known.span === null && share === 1;
  const span = isEven ? null : new Float64Array(step.length).fill(1);
  if (span !== null) {
    if (known.span !== null) span.set(known.span);
    span.fill(share, known.step.length);
  }
  const whole: Curve = {
    ...known,
    count: known.count + more.count,
    nonFinite: known.nonFinite + more.nonFinite,
    step,
    time: join("time"),
    value: join("value"),
    min: join("min"),
    max: join("max"),
    span,
  };
  return isAscending(step) ? whole : reordered(whole);
}

/** The first index whose value is at least `wanted`; the length if there is none. `values` ascend. */
export function firstAtLeast(values: ArrayLike<number>, wanted: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((values[middle] as number) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The index whose value is nearest to `wanted`, the earlier of two; -1 of none. `values` ascend. */
export function nearestIndex(values: ArrayLike<number>, wanted: number, length = values.length): number {
  if (length === 0) return -1;
  const after = Math.min(firstAtLeast(values, wanted), length);
  if (after === 0) return 0;
  if (after === length) return length - 1;
  return wanted - (values[after - 1] as number) <= (values[after] as number) - wanted ? after - 1 : after;
}

/**
 * A curve whose steps `from` to `to` (both included) are known more finely: the coarse places outside, the fine ones inside.
 *
 * The places keep what they stand for, in units of a coarse one, so that smoothing does not change with the zoom.
 */
export function refined(coarse: Curve, fine: Curve | undefined, from: number, to: number): Curve {
  if (fine === undefined || fine.step.length === 0) return coarse;
  const before = firstAtLeast(coarse.step, from);
  const after = Math.max(before, firstAtLeast(coarse.step, Math.floor(to) + 1));
  const join = (column: "step" | "time" | "value" | "min" | "max") => {
    const tail = coarse[column].subarray(after);
    const joined = new Float64Array(before + fine.step.length + tail.length);
    joined.set(coarse[column].subarray(0, before));
    joined.set(fine[column], before);
    joined.set(tail, before + fine.step.length);
    return joined;
  };
  const step = join("step");
  const span = new Float64Array(step.length).fill(1);
  if (coarse.span !== null) {
    span.set(coarse.span.subarray(0, before));
    span.set(coarse.span.subarray(after), before + fine.step.length);
  }
  span.fill(fine.perPlace / coarse.perPlace, before, before + fine.step.length);
  return {
    ...coarse,
    step,
    time: join("time"),
    value: join("value"),
    min: join("min"),
    max: join("max"),
    span,
  };
}

/**
 * Of each curve (one series of one job, an attempt each): from which index on a later attempt ran the steps again.
 *
 * A later attempt begins where its checkpoint was: what the earlier one had done beyond that is history, not the job's.
 */
export function supersededFrom(curves: readonly Curve[]): number[] {
  return curves.map((curve) => {
    let until = Number.POSITIVE_INFINITY;
    for (const other of curves)
      if (other.attempt > curve.attempt && other.step.length > 0) until = Math.min(until, other.step[0] as number);
    return until === Number.POSITIVE_INFINITY ? curve.step.length : firstAtLeast(curve.step, until);
  });
}

/** Where the places lie on an axis; `origin` is when the job began, for relative time, `units` what one step is. */
export function xOf(curve: Curve, axis: Axis, origin: number, units = 1): Float64Array {
  if (axis === "wall") return curve.time;
  if (axis === "relative") return curve.time.map((time) => time - origin);
  return units === 1 ? curve.step : curve.step.map((step) => step * units);
}

export interface Figures {
  last: number;
  lastStep: number;
  min: number;
  minStep: number;
  max: number;
  maxStep: number;
  /** Points whose value is not finite; places of a curve that a later attempt ran again in part. */
  nonFinite: number;
}

/** The last value and the finite extremes of a job's series, over its attempts, without what was run again. */
export function figuresOf(curves: readonly Curve[]): Figures | null {
  const figures: Figures = {
    last: Number.NaN,
    lastStep: -1,
    min: Number.NaN,
    minStep: -1,
    max: Number.NaN,
    maxStep: -1,
    nonFinite: 0,
  };
  const until = supersededFrom(curves);
  let lastAttempt = -1;
  curves.forEach((curve, which) => {
    const end = until[which] as number;
    if (end > 0 && curve.attempt > lastAttempt) {
      lastAttempt = curve.attempt;
      figures.last = curve.value[end - 1] as number;
      figures.lastStep = curve.step[end - 1] as number;
    }
    const isWhole = end === curve.step.length;
    if (isWhole) figures.nonFinite += curve.nonFinite;
    for (let index = 0; index < end; index += 1) {
      const low = curve.min[index] as number;
      const high = curve.max[index] as number;
      if (!isWhole && (!Number.isFinite(low) || !Number.isFinite(high) || Number.isNaN(curve.value[index])))
        figures.nonFinite += 1;
      if (Number.isFinite(low) && !(figures.min <= low)) {
        figures.min = low;
        figures.minStep = curve.step[index] as number;
      }
      if (Number.isFinite(high) && !(figures.max >= high)) {
        figures.max = high;
        figures.maxStep = curve.step[index] as number;
      }
    }
  });
  return lastAttempt === -1 ? null : figures;
}
