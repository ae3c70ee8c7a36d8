/** The exponential moving average that people know from TensorBoard: debiased, blind to what is not a number. */

/**
 * The debiased average after each value, and NaN where the value itself is not finite (a line has its gap there).
 *
 * With weight w, the plain average n = w·n + (1 − w)·v starts at 0 and is too small at first by d = w·d + (1 − w), so
 * n / d is shown. Written as a step from the last answer, s += (1 − w) / d · (v − s), it is the same number, and a series
 * that never changes stays exactly as it is, whatever rounding does.
 *
 * @param weight 0 (nothing changes) to below 1.
 * @param spans  How far each value lies from the one before it, where they do not lie evenly: one of 0.1 fades what came
 *               before as a tenth of a step does. So a curve keeps its smoothness where a part of it is known more finely.
 * @param range  Values beyond it are outliers: the average passes over them as if they were not there.
 */
export function smooth(
  values: ArrayLike<number>,
  weight: number,
  spans?: ArrayLike<number>,
  range: readonly [number, number] | null = null,
): Float64Array {
  const smoothed = new Float64Array(values.length);
  let average = 0;
  let bias = 0;
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index] as number;
    if (!Number.isFinite(value)) {
      smoothed[index] = Number.NaN;
      continue;
    }
    if (range !== null && bias > 0 && (value < range[0] || value > range[1])) {
      smoothed[index] = average;
      continue;
    }
    const kept = spans === undefined ? weight : weight ** (spans[index] as number);
    bias = kept * bias + (1 - kept);
    // Of a span of 0 nothing is new: the value lies where the one before it lies.
    if (bias > 0) average += ((1 - kept) / bias) * (value - average);
    smoothed[index] = average;
  }
  return smoothed;
}
