/** A long curve with fewer places, joined as the service joins points. */
import type { Curve } from "./curves";

/**
 * A curve of about `places` places, each of neighbours that were joined as the service joins points: the last one, and the
 * extremes of all.
 *
 * Places that stand for enough points already are left as they are, so that the beginning of a long curve does not become
 * coarser than its end.
 */
export function coarsened(curve: Curve, places: number): Curve {
  const count = curve.step.length;
  const pointsOf = (index: number) => curve.perPlace * (curve.span?.[index] ?? 1);
  let total = 0;
  for (let index = 0; index < count; index += 1) total += pointsOf(index);
  const enough = total / places;
  const ends: number[] = [];
  const sizes: number[] = [];
  let size = 0;
  for (let index = 0; index < count; index += 1) {
    size += pointsOf(index);
    // A remainder of rounding is no reason for one more neighbour.
    if (size < enough * (1 - 1e-9) && index < count - 1) continue;
    ends.push(index + 1);
    sizes.push(size);
    size = 0;
  }
  const join = (column: Float64Array, of: (column: Float64Array, from: number, to: number) => number) =>
    Float64Array.from(ends, (end, index) => of(column, ends[index - 1] ?? 0, end));
  const perPlace = total / ends.length;
  return {
    ...curve,
    perPlace,
    step: join(curve.step, lastIn),
    time: join(curve.time, lastIn),
    value: join(curve.value, (column, from, to) => (hasNaN(column, from, to) ? Number.NaN : lastIn(column, from, to))),
    min: join(curve.min, (column, from, to) => extreme(column, from, to, -1)),
    max: join(curve.max, (column, from, to) => extreme(column, from, to, 1)),
    span: sizes.every((each) => each === perPlace) ? null : Float64Array.from(sizes, (each) => each / perPlace),
  };
}

function lastIn(column: Float64Array, _from: number, to: number): number {
  return column[to - 1] as number;
}

function hasNaN(column: Float64Array, from: number, to: number): boolean {
  return column.subarray(from, to).some(Number.isNaN);
}

/** The smallest (`sign` -1) or the largest (1) of the values that are numbers; NaN if none is. */
function extreme(column: Float64Array, from: number, to: number, sign: 1 | -1): number {
  let found = Number.NaN;
  for (let index = from; index < to; index += 1)
    if (!(sign * (column[index] as number) <= sign * found) && !Number.isNaN(column[index]))
      found = column[index] as number;
  return found;
}
