/**
 * Which values of a chart lie so far out that the others cannot be told apart beside them.
 *
 * Between the 5th and the 95th percentile is the body of the values. What is more than one and a half times its height
 * away from it is an outlier, and only if leaving the outliers out makes the others several times as tall.
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
/** So many times as tall is the rest without them. */
const WORTH = 4;

/** Null where there are none. On a logarithmic axis distances are ratios, and values of 0 and below have no place. */
export function outliersIn(curves: readonly Curve[], isLog: boolean): Outliers | null {
  const place = (value: number) => (isLog ? Math.log10(value) : value);
  const has = (value: number) => Number.isFinite(value) && (!isLog || value > 0);
  const values: number[] = [];
  for (const { min, max } of curves)
    for (let index = 0; index < min.length; index += 1)
      for (const value of [min[index] as number, max[index] as number]) if (has(value)) values.push(place(value));
  if (values.length < LEAST_VALUES) return null;
  const sorted = Float64Array.from(values).sort();
  const at = (share: number) => sorted[Math.round(share * (sorted.length - 1))] as number;
  const [low, high] = [at(BODY), at(1 - BODY)];
  // Where all of the body is one value, a hundredth of it is its height.
  const tall = Math.max(high - low, Math.abs(high) / 100) || 1;
  const [least, most] = [low - FAR * tall, high + FAR * tall];
  const inside = sorted.filter((value) => value >= least && value <= most);
  const [first, last] = [inside[0] as number, inside[inside.length - 1] as number];
  const whole = (sorted[sorted.length - 1] as number) - (sorted[0] as number);
  if (inside.length === sorted.length || whole < WORTH * (last - first)) return null;
  const isOut = (value: number) => has(value) && (place(value) < first || place(value) > last);
  let count = 0;
  for (const { min, max } of curves)
    for (let index = 0; index < min.length; index += 1)
      if (isOut(min[index] as number) || isOut(max[index] as number)) count += 1;
  const back = (value: number) => (isLog ? 10 ** value : value);
  return { range: [back(first), back(last)], count };
}

/** The part of an extent that lies within `range`; all of it where it lies beyond. NaN stays NaN. */
export function within([low, high]: [number, number], range: readonly [number, number] | null): [number, number] {
  if (range === null || high < range[0] || low > range[1]) return [low, high];
  return [Math.max(low, range[0]), Math.min(high, range[1])];
}
