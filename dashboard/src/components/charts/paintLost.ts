/** Marks at the edges of a chart for values that have no place in it: those that are no numbers, and those beyond its axis. */
import { number } from "@/lib/format";
import type { Line } from "@/lib/lines";
import type { ChartColours } from "./colours";
import type { Frame } from "./frame";

const MARK_APART = 7;

/** ▲ at the upper edge for Infinity, ▼ and ◆ at the lower one for -Infinity and NaN; as many as fit side by side. */
export function marks(frame: Frame, line: Line, [first, last]: [number, number], colour: string, panel: string): void {
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
export function beyond(
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
