/** Reading of a chart by keys: which places there are, and which one a key leads to. */
import { type Axis, isTime } from "./axes";
import { firstAtLeast } from "./curves";
import type { Line, Reading } from "./lines";

/** The places of one job between the bounds of the view, attempt after attempt. */
export interface Run {
  job: string;
  name: string;
  parts: readonly { line: Line; first: number; count: number }[];
  count: number;
}

/** A place of a run, counted from 0. */
export interface Position {
  run: number;
  place: number;
}

const FAR = 10;

/** Runs that have places to read. Along steps, what was run again is read as the later attempt ran it. */
export function runsOf(lines: readonly Line[], from: number, to: number, axis: Axis): Run[] {
  const runs = new Map<string, Run>();
  for (const line of lines) {
    const first = firstAtLeast(line.x, from);
    let end = first;
    const most = isTime(axis) ? line.x.length : line.end;
    while (end < most && (line.x[end] as number) <= to) end += 1;
    if (end <= first) continue;
    const known = runs.get(line.job) ?? { job: line.job, name: line.name, parts: [], count: 0 };
    const part = { line, first, count: end - first };
    runs.set(line.job, { ...known, parts: [...known.parts, part], count: known.count + part.count });
  }
  return [...runs.values()];
}

export function readingAt(runs: readonly Run[], { run, place }: Position): Reading | null {
  let left = place;
  for (const { line, first, count } of runs[run]?.parts ?? []) {
    if (left < count) return left < 0 ? null : { line, index: first + left };
    left -= count;
  }
  return null;
}

/** Where a key leads from a place, or from nowhere; null for a key that does not move. */
export function reached(key: string, isFar: boolean, at: Position | null, runs: readonly Run[]): Position | null {
  const known = at !== null && at.run < runs.length ? at : null;
  const run = known?.run ?? 0;
  const count = runs[run]?.count ?? 0;
  if (count === 0) return null;
  const clamped = (place: number): Position => ({ run, place: Math.max(0, Math.min(count - 1, place)) });
  const steps = isFar ? FAR : 1;
  switch (key) {
    case "ArrowRight":
      return clamped(known === null ? 0 : known.place + steps);
    case "ArrowLeft":
      return clamped(known === null ? count - 1 : known.place - steps);
    case "Home":
      return clamped(0);
    case "End":
      return clamped(count - 1);
    case "ArrowUp":
    case "ArrowDown":
      return known === null ? clamped(count - 1) : aside(key === "ArrowUp" ? -1 : 1, known, runs);
    default:
      return null;
  }
}

/** The place of the neighbouring run that is nearest along the axis; the run itself at either end. */
function aside(by: number, at: Position, runs: readonly Run[]): Position {
  const run = Math.max(0, Math.min(runs.length - 1, at.run + by));
  const from = readingAt(runs, at);
  if (run === at.run || from === null) return at;
  const x = from.line.x[from.index] as number;
  let nearest = 0;
  let least = Number.POSITIVE_INFINITY;
  let place = 0;
  for (const { line, first, count } of runs[run]?.parts ?? [])
    for (let index = first; index < first + count; index += 1, place += 1) {
      const distance = Math.abs((line.x[index] as number) - x);
      if (distance < least) [nearest, least] = [place, distance];
    }
  return { run, place: nearest };
}
