/** The band behind a line whose places are buckets. */
import type { Line } from "@/lib/lines";
import { FAINT, type Frame } from "./frame";

const EDGE = 0.5;

/**
 * Between the extremes of each bucket. An infinity reaches the edge; what has no extremes is a gap.
 *
 * The edges are drawn as lines: a single spike among a thousand buckets is as narrow as a hair, and filled it would be
 * too faint to see.
 */
export function band(frame: Frame, line: Line, [first, last]: [number, number], colour: string, fill: number): void {
  const { context, ratio } = frame;
  const { count, step, span } = line.curve;
  if (count === step.length && span === null) return;
  const end = Math.max(first, Math.min(last, line.end));
  context.fillStyle = colour;
  context.strokeStyle = colour;
  context.lineWidth = ratio;
  stretch(frame, line, first, end, fill, 1);
  stretch(frame, line, end, last, fill, FAINT);
  context.globalAlpha = 1;
}

function stretch(frame: Frame, line: Line, first: number, last: number, fill: number, strength: number): void {
  const { context, ratio, x, y } = frame;
  const { min, max } = line.curve;
  const low = (index: number) => {
    const value = min[index] as number;
    return value === Number.NEGATIVE_INFINITY ? frame.bottom : orEdge(y(value), value, frame.bottom);
  };
  const high = (index: number) => {
    const value = max[index] as number;
    return value === Number.POSITIVE_INFINITY ? frame.top : y(value);
  };
  const isThere = (index: number) => !Number.isNaN(high(index)) && !Number.isNaN(low(index));
  const at = (index: number) => x(line.x[index] as number);
  let begin = first;
  while (begin < last) {
    while (begin < last && !isThere(begin)) begin += 1;
    let stop = begin;
    while (stop < last && isThere(stop)) stop += 1;
    if (stop - begin === 1) {
      context.globalAlpha = EDGE * strength;
      context.fillRect(at(begin) - ratio, high(begin), 2 * ratio, low(begin) - high(begin));
    } else if (stop > begin) {
      context.beginPath();
      for (let index = begin; index < stop; index += 1) context.lineTo(at(index), high(index));
      for (let index = stop - 1; index >= begin; index -= 1) context.lineTo(at(index), low(index));
      context.globalAlpha = fill * strength;
      context.fill();
      context.beginPath();
      context.moveTo(at(begin), high(begin));
      for (let index = begin + 1; index < stop; index += 1) context.lineTo(at(index), high(index));
      context.moveTo(at(begin), low(begin));
      for (let index = begin + 1; index < stop; index += 1) context.lineTo(at(index), low(index));
      context.globalAlpha = EDGE * strength;
      context.stroke();
    }
    begin = stop;
  }
}

/** On a logarithmic axis a band that begins at or below zero begins at the lower edge. */
function orEdge(place: number, value: number, edge: number): number {
  return Number.isNaN(place) && value <= 0 ? edge : place;
}
