/**
 * Drawing of lines on uPlot's canvas: band, raw line, smoothed line, marks for non-finite values,
 * and events below them.
 *
 * Each line keeps its own x. uPlot's own series share one x, for which the steps of twenty jobs
 * would have to be joined into twenty thousand columns full of gaps. uPlot provides scales, axes,
 * cursor and zoom.
 */
import type uPlot from "uplot";
import { number } from "@/lib/format";
import { type Line, window } from "@/lib/lines";
import type { Placed } from "@/lib/mark-places";
import { BASELINE, COLOURS, dashOf, GREY, TOLD_APART } from "@/lib/palette";
import { type ChartColours, colourAt } from "./colours";
import { FAINT, type Frame, frameOf } from "./frame";
import { band } from "./paintBand";
import { strip } from "./paintMarks";

export interface Scene {
  lines: readonly Line[];
  isLog: boolean;
  /** The y axis does not hold all values: those beyond it are marked at its edges. */
  isClipped?: boolean;
  /** The job, or the group of jobs, that the user points at: its line is over all others, which are faint. */
  hot?: string | null;
  colours: ChartColours;
  marks?: readonly Placed[];
}

const MARK_APART = 7;

export function paint(plot: uPlot, scene: Scene): void {
  const { lines, isLog, isClipped = false, hot = null, colours, marks: places = [] } = scene;
  const frame = frameOf(plot, isLog);
  if (frame === null) return;
  const { context } = frame;
  context.save();
  context.beginPath();
  context.rect(frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top);
  context.clip();
  context.lineJoin = "round";
  const jobs = new Set(lines.map(({ job }) => job));
  const several = jobs.size > 1;
  const looks = { hot: several && hot !== null && jobs.has(hot) ? hot : null, count: jobs.size };
  const seen = inOrder(lines, looks.hot).map((line) => ({
    line,
    range: window(line.x, frame.from, frame.to),
    // Bands of many lines hide each other.
    isAlone: line.job === looks.hot || (jobs.size <= COLOURS && line.isMean !== true),
  }));
  for (const { line, range, isAlone } of seen)
    if (isAlone) band(frame, line, range, lineColour(line, colours, looks.hot), several || line.smoothed !== null);
  for (const { line, range } of seen) curve(frame, line, range, lineColour(line, colours, looks.hot), looks);
  for (const { line, range, isAlone } of seen) {
    if (line.isRestart && isAlone) restart(frame, line, colours, lines, places);
    marks(frame, line, range, colourOf(line, colours), colours.panel);
    if (isClipped) beyond(frame, line, range, colourOf(line, colours), colours);
  }
  context.restore();
  strip(frame, places, colours);
}

/** The baseline is over the others, and what the user points at over all. */
function inOrder(lines: readonly Line[], hot: string | null): Line[] {
  const rank = ({ job, slot }: Line) => (job === hot ? 2 : slot === BASELINE ? 1 : 0);
  return [...lines].sort((a, b) => rank(a) - rank(b));
}

function colourOf(line: Line, colours: ChartColours): string {
  return colourAt(colours, line.slot);
}

/** One of many grey lines has a colour while the user points at it. */
function lineColour(line: Line, colours: ChartColours, hot: string | null): string {
  return line.slot === GREY && line.job === hot ? colourAt(colours, 0) : colourOf(line, colours);
}

interface Looks {
  hot: string | null;
  /** Jobs that are drawn. */
  count: number;
}

/** Pixels added to the width of a line, and its opacity. */
function emphasis({ job, slot, isMean }: Line, { hot, count }: Looks): { added: number; alpha: number } {
  const own = slot === BASELINE || isMean === true ? 0.5 : count > TOLD_APART ? -0.5 : 0;
  if (job === hot) return { added: own + 1.25, alpha: 1 };
  return { added: own, alpha: hot === null || slot === BASELINE ? 1 : FAINT };
}

function curve(frame: Frame, line: Line, [first, last]: [number, number], colour: string, looks: Looks): void {
  const { context, ratio } = frame;
  const { added, alpha: opacity } = emphasis(line, looks);
  context.strokeStyle = colour;
  context.fillStyle = colour;
  const end = Math.max(first, Math.min(last, line.end));
  const isSparse = looks.count <= TOLD_APART && (last - first) * 14 * ratio < frame.right - frame.left;
  const draw = (values: Float64Array, width: number, share: number, withDots: boolean) => {
    const alpha = opacity * share;
    context.globalAlpha = alpha;
    context.lineWidth = (width + added) * ratio;
    context.setLineDash(dashOf(line.slot).map((part) => part * ratio));
    stroke(frame, line.x, values, first, end, withDots);
    // Repeated steps are history: faint, and joined to the point where the attempts part.
    context.globalAlpha = alpha * FAINT;
    if (last > end) stroke(frame, line.x, values, Math.max(first, end - 1), last, false);
  };
  if (line.smoothed === null) draw(line.curve.value, 1.5, 1, isSparse);
  else {
    draw(line.curve.value, 1, FAINT, false);
    draw(line.smoothed, 1.75, 1, isSparse);
  }
  context.globalAlpha = 1;
  context.setLineDash([]);
}

function stroke(
  frame: Frame,
  xs: Float64Array,
  values: Float64Array,
  first: number,
  last: number,
  withDots: boolean,
): void {
  const { context, x, y, ratio } = frame;
  const dots: [number, number][] = [];
  let isOpen = false;
  context.beginPath();
  for (let index = first; index < last; index += 1) {
    const top = y(values[index] as number);
    if (Number.isNaN(top)) {
      isOpen = false;
      continue;
    }
    const at = x(xs[index] as number);
    const isAlone = !isOpen && (index + 1 >= last || Number.isNaN(y(values[index + 1] as number)));
    if (isOpen) context.lineTo(at, top);
    else context.moveTo(at, top);
    isOpen = true;
    if (withDots || isAlone) dots.push([at, top]);
  }
  context.stroke();
  for (const [at, top] of dots) {
    context.beginPath();
    context.arc(at, top, 2.25 * ratio, 0, 2 * Math.PI);
    context.fill();
  }
}

/** ▲ at the upper edge for Infinity, ▼ and ◆ at the lower one for -Infinity and NaN; as many as fit side by side. */
function marks(frame: Frame, line: Line, [first, last]: [number, number], colour: string, panel: string): void {
  const { context, ratio } = frame;
  const size = 4 * ratio;
  const drawn = { up: Number.NEGATIVE_INFINITY, down: Number.NEGATIVE_INFINITY, none: Number.NEGATIVE_INFINITY };
  context.fillStyle = colour;
  context.strokeStyle = panel;
  context.lineWidth = ratio;
  const put = (kind: keyof typeof drawn, at: number, shape: readonly (readonly [number, number])[], y: number) => {
    if (at - drawn[kind] < MARK_APART * ratio) return;
    drawn[kind] = at;
    context.beginPath();
    for (const [dx, dy] of shape) context.lineTo(at + dx * size, y + dy * size);
    context.closePath();
    context.fill();
    context.stroke();
  };
  for (let index = first; index < last; index += 1) {
    const at = frame.x(line.x[index] as number);
    if (line.curve.max[index] === Number.POSITIVE_INFINITY) put("up", at, UP, frame.top + size * 1.25);
    if (line.curve.min[index] === Number.NEGATIVE_INFINITY) put("down", at, DOWN, frame.bottom - size * 1.25);
    if (Number.isNaN(line.curve.value[index])) put("none", at, DIAMOND, frame.bottom - size * 1.25);
  }
}

/** △ and ▽ at the edges for values beyond them, the first of each with its value, as far as there is room. */
function beyond(
  frame: Frame,
  line: Line,
  [first, last]: [number, number],
  colour: string,
  { panel, axis }: ChartColours,
): void {
  const { context, ratio } = frame;
  const size = 4 * ratio;
  context.strokeStyle = colour;
  context.lineWidth = 1.5 * ratio;
  context.font = `${11 * ratio}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  for (const edge of [
    { values: line.curve.max, shape: UP, y: frame.top + size * 1.5, isBeyond: (top: number) => top < frame.top },
    {
      values: line.curve.min,
      shape: DOWN,
      y: frame.bottom - size * 1.5,
      isBeyond: (top: number) => top > frame.bottom,
    },
  ]) {
    let drawnTo = Number.NEGATIVE_INFINITY;
    for (let index = first; index < last; index += 1) {
      const value = edge.values[index] as number;
      const at = frame.x(line.x[index] as number);
      if (!edge.isBeyond(frame.y(value)) || at - size < drawnTo) continue;
      context.fillStyle = panel;
      context.beginPath();
      for (const [dx, dy] of edge.shape) context.lineTo(at + dx * size, edge.y + dy * size);
      context.closePath();
      context.fill();
      context.stroke();
      const words = number(value);
      const wide = context.measureText(words).width + 3 * ratio;
      const isLate = at + size + wide > frame.right;
      context.textAlign = isLate ? "right" : "left";
      context.fillStyle = axis;
      context.fillText(words, at + (isLate ? -1 : 1) * (size + 2 * ratio), edge.y);
      drawnTo = at + size + (isLate ? 0 : wide);
    }
  }
}

const UP = [
  [0, -1],
  [1, 1],
  [-1, 1],
] as const;
const DOWN = [
  [0, 1],
  [1, -1],
  [-1, -1],
] as const;
const DIAMOND = [
  [0, -1.2],
  [1.2, 0],
  [0, 1.2],
  [-1.2, 0],
] as const;

/**
 * Position of the mark if there is one, so that both coincide; otherwise the attempt's first point.
 */
function restart(
  frame: Frame,
  line: Line,
  colours: ChartColours,
  lines: readonly Line[],
  places: readonly Placed[],
): void {
  const { context, ratio } = frame;
  if (line.x.length === 0) return;
  const known = places.find(({ mark }) => mark.kind === "restart" && mark.attempt === line.curve.attempt);
  const at = Math.round(frame.x(known?.x ?? (line.x[0] as number)));
  if (at < frame.left || at > frame.right) return;
  const several = lines.some((other) => other.job !== line.job);
  context.strokeStyle = several ? colourOf(line, colours) : colours.axis;
  context.lineWidth = ratio;
  context.setLineDash([2 * ratio, 3 * ratio]);
  context.beginPath();
  context.moveTo(at, frame.top);
  context.lineTo(at, frame.bottom);
  context.stroke();
  context.setLineDash([]);
  if (several) return;
  context.fillStyle = colours.axis;
  context.font = `${12 * ratio}px system-ui, sans-serif`;
  const words = `attempt ${line.curve.attempt}`;
  const isLate = at + context.measureText(words).width + 6 * ratio > frame.right;
  context.textAlign = isLate ? "right" : "left";
  context.textBaseline = "top";
  context.fillText(words, at + (isLate ? -4 : 4) * ratio, frame.top + 2 * ratio);
}
