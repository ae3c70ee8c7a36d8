/** Buckets as the service makes them, for tests: the last step and value, NaN if any value is, the extremes of numbers. */
import type { SeriesView } from "@/api/generated";

export interface Point {
  step: number;
  value: number;
}

export function bucketed(points: readonly Point[], most: number, attempt = 1): SeriesView {
  const size = Math.max(1, Math.ceil(points.length / most));
  const parts: Point[][] = [];
  for (let at = 0; at < points.length; at += size) parts.push(points.slice(at, at + size));
  const last = (part: readonly Point[]) => part[part.length - 1] as Point;
  const numbers = (part: readonly Point[]) => part.map((point) => point.value).filter((value) => !Number.isNaN(value));
  const named = (value: number) => (Number.isFinite(value) ? value : String(value));
  return {
    name: "train/loss",
    unit: "loss",
    attempt,
    count: points.length,
    non_finite: points.filter(({ value }) => !Number.isFinite(value)).length,
    step: parts.map((part) => last(part).step),
    time: parts.map((part) => 1_000 + last(part).step),
    value: parts.map((part) => named(part.some(({ value }) => Number.isNaN(value)) ? Number.NaN : last(part).value)),
    min: parts.map((part) => named(numbers(part).length ? Math.min(...numbers(part)) : Number.NaN)),
    max: parts.map((part) => named(numbers(part).length ? Math.max(...numbers(part)) : Number.NaN)),
  };
}

/** Of steps that ascend; here and there one that is not a number. */
export function randomPoints(random: () => number, length: number): Point[] {
  let step = Math.floor(random() * 5);
  return Array.from({ length }, () => {
    step += 1 + Math.floor(random() * 3);
    const kind = random();
    if (kind < 0.03) return { step, value: Number.NaN };
    if (kind < 0.05) return { step, value: Number.POSITIVE_INFINITY };
    if (kind < 0.07) return { step, value: Number.NEGATIVE_INFINITY };
    return { step, value: random() * 10 - 5 };
  });
}
