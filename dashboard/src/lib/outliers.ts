/**
 * Which values of a chart lie so far out that the others cannot be told apart beside them.
 *
 * Between the 5th and the 95th percentile is the body of the values. What is more than one and a half times its height
 * away from it is an outlier, and only if leaving the outliers out makes the others several times as tall. A curve that
 * comes down from far out without a jump, as a loss does, has no outliers at its start.
 */
import type { Curve } from "./curves";

export interface Outliers {
  /** The bounds of what is none, within the values that there are. */
  range: readonly [number, number];
  /** Places of the curves that have a value beyond the bounds. */
  count: number;
}

const BODY = 0.05;
const FAR = 1.5;
/** Of fewer, none can be told from the rest. */
const LEAST_VALUES = 20;
/** A larger part of the way to the body in one step is a jump. */
const JUMP = 0.75;
/** So many times as tall is the rest without them. */
const WORTH = 4;

interface Extents {
  min: Float64Array;
  max: Float64Array;
}

/** Null where there are none. On a logarithmic axis distances are ratios, and values of 0 and below have no place. */
export function outliersIn(curves: readonly Curve[], isLog: boolean): Outliers | null {
  const place = (value: number) => (isLog ? (value > 0 ? Math.log10(value) : Number.NaN) : value);
  const placed: Extents[] = curves.map(({ min, max }) => ({ min: min.map(place), max: max.map(place) }));
  const values = placed.flatMap(({ min, max }) => [...min, ...max]).filter(Number.isFinite);
  if (values.length < LEAST_VALUES) return null;
  const sorted = Float64Array.from(values).sort();
  const at = (share: number) => sorted[Math.round(share * (sorted.length - 1))] as number;
  const body: Bounds = [at(BODY), at(1 - BODY)];
  // Where all of the body is one value, a hundredth of it is its height.
  const tall = Math.max(body[1] - body[0], Math.abs(body[1]) / 100) || 1;
  const bounds: Bounds = [body[0] - FAR * tall, body[1] + FAR * tall];
  const isOut = (value: number) => Number.isFinite(value) && (value < bounds[0] || value > bounds[1]);
  let [first, last, count] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0];
  for (const extents of placed) {
    const start = startOf(extents, isOut, body);
    for (let index = 0; index < extents.min.length; index += 1) {
      const both = [extents.min[index] as number, extents.max[index] as number].filter(Number.isFinite);
      const inside = index < start ? both : both.filter((value) => !isOut(value));
      first = Math.min(first, ...inside);
      last = Math.max(last, ...inside);
      if (inside.length < both.length) count += 1;
    }
  }
  const whole = (sorted[sorted.length - 1] as number) - (sorted[0] as number);
  if (count === 0 || whole < WORTH * (last - first)) return null;
  const back = (value: number) => (isLog ? 10 ** value : value);
  return { range: [back(first), back(last)], count };
}

type Bounds = readonly [number, number];

/** Number of places at the beginning of a curve that lie far out and come to the body without a jump. */
function startOf({ min, max }: Extents, isOut: (value: number) => boolean, [low, high]: Bounds): number {
  const of = (values: Float64Array, index: number) => values[index] as number;
  let length = 0;
  while (length < min.length && (isOut(of(min, length)) || isOut(of(max, length)))) length += 1;
  // One place alone is a jump to the next.
  if (length < 2 || length === min.length) return 0;
  for (let index = 0; index < length; index += 1) {
    const isAbove = of(max, index) - high > low - of(min, index);
    const way = isAbove ? of(max, index) - high : low - of(min, index);
    const gap = isAbove ? of(min, index) - of(max, index + 1) : of(min, index + 1) - of(max, index);
    if (gap > JUMP * way) return 0;
  }
  return length;
}

/** The part of an extent that lies within `range`; all of it where it lies beyond. NaN stays NaN. */
export function within([low, high]: [number, number], range: readonly [number, number] | null): [number, number] {
  if (range === null || high < range[0] || low > range[1]) return [low, high];
  return [Math.max(low, range[0]), Math.min(high, range[1])];
}
