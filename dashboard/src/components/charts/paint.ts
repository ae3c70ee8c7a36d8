/**
 * Drawing of lines on uPlot's canvas: band, raw line, smoothed line, marks for non-finite values,
 * and events below them.
 *
 * Each line keeps its own x. uPlot's own series share one x, for which the steps of twenty jobs
 * would have to be joined into twenty thousand columns full of gaps. uPlot provides scales, axes,
 * cursor and zoom.
 */
import type uPlot from "uplot";
import { type Line, window } from "@/lib/lines";
import type { Placed } from "@/lib/mark-places";
import { BASELINE, COLOURS, dashOf, GREY, TOLD_APART } from "@/lib/palette";
import { type ChartColours, colourAt } from "./colours";
import { FAINT, type Frame, frameOf } from "./frame";
import { band } from "./paintBand";
import { beyond, marks } from "./paintLost";
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
