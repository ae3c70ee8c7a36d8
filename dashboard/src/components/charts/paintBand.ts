/** Band behind a line of buckets: from the lowest to the highest value of each. */
import type { Line } from "@/lib/lines";
import { FAINT, type Frame } from "./frame";

/** Of one line, and of one among several or behind a smoothed one, which it must not drown. */
const STRONG = { fill: 0.2, edge: 0.5 };
const LIGHT = { fill: 0.12, edge: 0.3 };

/**
 * An infinity reaches the edge; a bucket without extremes is a gap.
 *
 * The edges are drawn as lines: a single spike among a thousand buckets is very narrow, and a fill
 * alone would be too faint.
 */
export function band(
  frame: Frame,
  line: Line,
  [first, last]: [number, number],
  colour: string,
  isLight: boolean,
): void {
  const { context, ratio } = frame;
  const { count, step, span } = line.curve;
  if (count === step.length && span === null) return;
  const alphas = isLight ? LIGHT : STRONG;
  const end = Math.max(first, Math.min(last, line.end));
  context.fillStyle = colour;
  context.strokeStyle = colour;
  context.lineWidth = ratio;
  for (const run of columns(frame, line, first, end)) stretch(frame, run, alphas, 1);
  for (const run of columns(frame, line, end, last)) stretch(frame, run, alphas, FAINT);
  context.globalAlpha = 1;
}

interface Columns {
  x: number[];
  top: number[];
  bottom: number[];
}

/**
 * Columns of buckets without gaps in between; buckets in one column of pixels are joined, which
 * looks the same.
 */
function columns(frame: Frame, line: Line, first: number, last: number): Columns[] {
  const { min, max } = line.curve;
  const runs: Columns[] = [];
  let run: Columns | null = null;
  for (let index = first; index < last; index += 1) {
    const least = min[index] as number;
    const most = max[index] as number;
    const top = most === Number.POSITIVE_INFINITY ? frame.top : frame.y(most);
    const bottom = least === Number.NEGATIVE_INFINITY ? frame.bottom : orEdge(frame.y(least), least, frame.bottom);
    if (Number.isNaN(top) || Number.isNaN(bottom)) {
      run = null;
      continue;
    }
    const x = Math.round(frame.x(line.x[index] as number));
    if (run === null) {
      run = { x: [x], top: [top], bottom: [bottom] };
      runs.push(run);
      continue;
    }
    const at = run.x.length - 1;
    if (run.x[at] === x) {
      run.top[at] = Math.min(run.top[at] as number, top);
      run.bottom[at] = Math.max(run.bottom[at] as number, bottom);
    } else {
      run.x.push(x);
      run.top.push(top);
      run.bottom.push(bottom);
    }
  }
  return runs;
}

function stretch(
  { context, ratio }: Frame,
  { x, top, bottom }: Columns,
  alphas: typeof STRONG,
  strength: number,
): void {
  const count = x.length;
  if (count === 1) {
    context.globalAlpha = alphas.edge * strength;
    context.fillRect((x[0] as number) - ratio, top[0] as number, 2 * ratio, (bottom[0] as number) - (top[0] as number));
    return;
  }
  context.beginPath();
  for (let at = 0; at < count; at += 1) context.lineTo(x[at] as number, top[at] as number);
  for (let at = count - 1; at >= 0; at -= 1) context.lineTo(x[at] as number, bottom[at] as number);
  context.globalAlpha = alphas.fill * strength;
  context.fill();
  context.beginPath();
  for (const edge of [top, bottom]) {
    context.moveTo(x[0] as number, edge[0] as number);
    for (let at = 1; at < count; at += 1) context.lineTo(x[at] as number, edge[at] as number);
  }
  context.globalAlpha = alphas.edge * strength;
  context.stroke();
}

/** On a logarithmic axis a band that begins at or below zero begins at the lower edge. */
function orEdge(place: number, value: number, edge: number): number {
  return Number.isNaN(place) && value <= 0 ? edge : place;
}
