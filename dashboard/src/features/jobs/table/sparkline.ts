/**
 * A series as a drawing of some pixels that hides nothing: the extremes of every bucket are drawn as bars, the line goes
 * through the buckets' last values, and it breaks, with a mark, where a value is no finite number.
 */
import type { SeriesView } from "@/api/generated";

export interface Mark {
  x: number;
  kind: "nan" | "infinity" | "-infinity";
}

export interface Drawing {
  /** Path of a line through the last values: one piece per run of finite ones. */
  line: string;
  /** Path of one upright bar per bucket, from its smallest to its largest finite value. */
  bars: string;
  marks: Mark[];
  /** Smallest and largest finite value; null where there is none. */
  range: { low: number; high: number } | null;
}

export interface Box {
  width: number;
  height: number;
  /** Kept free on all sides, for the line's own width and the marks. */
  margin: number;
}

type Points = Pick<SeriesView, "step" | "value" | "min" | "max">;

export function drawing(points: Points, box: Box): Drawing {
  const steps = points.step;
  const values = points.value.map(Number);
  const lows = points.min.map(Number);
  const highs = points.max.map(Number);
  const finite = [...values, ...lows, ...highs].filter(Number.isFinite);
  const range = finite.length === 0 ? null : { low: Math.min(...finite), high: Math.max(...finite) };
  const first = steps[0] ?? 0;
  const span = (steps.at(-1) ?? 0) - first;
  const x = (place: number) =>
    round(box.margin + (span === 0 ? 0.5 : ((steps[place] ?? 0) - first) / span) * (box.width - 2 * box.margin));
  const y = (value: number) => {
    const { low, high } = range ?? { low: 0, high: 0 };
    // Halves first: the distance of two numbers may be more than a number holds.
    const share = high === low ? 0.5 : (value / 2 - low / 2) / (high / 2 - low / 2);
    return round(box.margin + (1 - share) * (box.height - 2 * box.margin));
  };

  const marks: Mark[] = [];
  let line = "";
  let bars = "";
  let isDrawing = false;
  for (const place of steps.keys()) {
    const [value, low, high] = [values[place] ?? NaN, lows[place] ?? NaN, highs[place] ?? NaN];
    const ends = [low, high].filter(Number.isFinite);
    if (ends.length > 0) bars += `M${x(place)} ${y(Math.min(...ends))}V${y(Math.max(...ends))}`;
    if (Number.isNaN(value)) marks.push({ x: x(place), kind: "nan" });
    if (high === Infinity || value === Infinity) marks.push({ x: x(place), kind: "infinity" });
    if (low === -Infinity || value === -Infinity) marks.push({ x: x(place), kind: "-infinity" });
    if (!Number.isFinite(value)) {
      isDrawing = false;
      continue;
    }
    const last = !Number.isFinite(values[place + 1] ?? NaN);
    // A value between two gaps is a line of no length: with round ends it is a dot.
    line += isDrawing ? `L${x(place)} ${y(value)}` : `M${x(place)} ${y(value)}${last ? "h0" : ""}`;
    isDrawing = true;
  }
  return { line, bars, marks, range };
}

/** The lowest or the highest finite value, by the direction of the series; null without one. */
export function bestOf({ direction, min, max }: Pick<SeriesView, "direction" | "min" | "max">): number | null {
  if (direction !== "lower" && direction !== "higher") return null;
  const values = (direction === "lower" ? min : max).map(Number).filter(Number.isFinite);
  if (values.length === 0) return null;
  return direction === "lower" ? Math.min(...values) : Math.max(...values);
}

function round(pixels: number): number {
  return Math.round(pixels * 10) / 10;
}
