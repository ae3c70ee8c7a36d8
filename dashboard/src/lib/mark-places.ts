/**
 * Where marks lie on an axis, and which are drawn as one because they would lie over each other.
 *
 * A mark knows its moment and sometimes its step. Along steps, a moment is where the curve was then; along time, a step is
 * where the curve reached it, because a checkpoint is told of when it is stored, which is later.
 */
import { type Axis, isTime } from "./axes";
import { firstAtLeast } from "./curves";
import type { Line } from "./lines";
import { MARK_KINDS, type Mark, type MarkKind } from "./marks";

export interface Placed {
  mark: Mark;
  x: number;
}

/** In the order of the axis. Nothing where there is no line: then there is no axis either. */
export function placed(marks: readonly Mark[], lines: readonly Line[], axis: Axis, units: number): Placed[] {
  const drawn = lines.filter(({ x }) => x.length > 0);
  if (drawn.length === 0) return [];
  return marks.map((mark) => ({ mark, x: placeOf(mark, drawn, axis, units) })).sort((a, b) => a.x - b.x);
}

function placeOf(mark: Mark, lines: readonly Line[], axis: Axis, units: number): number {
  const own = lines.find(({ curve }) => curve.attempt === mark.attempt);
  if (!isTime(axis)) {
    if (mark.step !== null) return mark.step * units;
    const line = own ?? lines.findLast(({ curve }) => (curve.time[0] as number) <= mark.at) ?? (lines[0] as Line);
    return between(line.curve.time, line.x, mark.at);
  }
  // An attempt begins before its first step, which is that after its checkpoint: its moment says more.
  const isReached = mark.kind !== "restart" && mark.step !== null && own !== undefined && covers(own, mark.step);
  if (isReached) return between(own.curve.step, own.x, mark.step as number);
  return axis === "wall" ? mark.at : mark.at - (lines[0] as Line).origin;
}

function covers({ curve: { step } }: Line, wanted: number): boolean {
  return wanted >= (step[0] as number) && wanted <= (step[step.length - 1] as number);
}

/** The value at a key between two known ones, and that of the nearest beyond them. `keys` ascend. */
function between(keys: Float64Array, values: Float64Array, wanted: number): number {
  const after = firstAtLeast(keys, wanted);
  if (after === 0) return values[0] as number;
  if (after === keys.length) return values[keys.length - 1] as number;
  const [low, high] = [keys[after - 1] as number, keys[after] as number];
  const [start, end] = [values[after - 1] as number, values[after] as number];
  return start + ((wanted - low) / (high - low)) * (end - start);
}

/** Pixels that a sign is wide, with what keeps it from the next. */
export const SIGN = 10;

/** Marks that are drawn as one: the signs of their kinds side by side, or a run of checkpoints. */
export interface Cluster {
  /** Each kind once. */
  kinds: readonly MarkKind[];
  /** Pixels of the first and of the last mark. */
  from: number;
  to: number;
}

/** Of the places between the bounds, in pixels; checkpoints come first, so that nothing rare is drawn below them. */
export function clusters(
  places: readonly Placed[],
  pixel: (x: number) => number,
  left: number,
  right: number,
): Cluster[] {
  const seen = places
    .map(({ mark: { kind }, x }) => ({ kinds: [kind], from: pixel(x), to: pixel(x) }))
    .filter(({ from }) => from >= left - 0.5 && from <= right + 0.5);
  const isSaved = ({ kinds }: Cluster) => kinds[0] === "checkpoint";
  return [...joined(seen.filter(isSaved)), ...joined(seen.filter((cluster) => !isSaved(cluster)))];
}

/** Whatever would touch, as one, until nothing touches: what was joined is wider than its parts. */
function joined(parts: readonly Cluster[]): Cluster[] {
  const done: Cluster[] = [];
  for (const part of parts) {
    let last: Cluster = part;
    for (let before = done.at(-1); before !== undefined && touches(before, last); before = done.at(-1)) {
      done.pop();
      const kinds = MARK_KINDS.filter((kind) => before?.kinds.includes(kind) || last.kinds.includes(kind));
      last = { kinds, from: Math.min(before.from, last.from), to: Math.max(before.to, last.to) };
    }
    done.push(last);
  }
  return done;
}

function touches(a: Cluster, b: Cluster): boolean {
  return edges(b)[0] < edges(a)[1];
}

/** A run is as wide as its marks lie apart; signs stand side by side around their middle. */
export function edges({ kinds, from, to }: Cluster): [number, number] {
  if (kinds[0] === "checkpoint") return [from - SIGN / 2, to + SIGN / 2];
  const middle = (from + to) / 2;
  const half = (kinds.length * SIGN) / 2;
  return [middle - half, middle + half];
}

/** What is near a place, for a tooltip: checkpoints in one sentence, the rest each in its own. */
export function told(places: readonly Placed[]): { kind: MarkKind; words: string }[] {
  const saved = places.filter(({ mark }) => mark.kind === "checkpoint").map(({ mark }) => mark);
  const others = places.flatMap(({ mark: { kind, words } }) => (kind === "checkpoint" ? [] : [{ kind, words }]));
  if (saved.length === 0) return others;
  const steps = saved.flatMap(({ step }) => (step === null ? [] : [step]));
  const range = [Math.min(...steps), Math.max(...steps)].map((step) => step.toLocaleString("en-US"));
  const words =
    saved.length === 1 || steps.length < 2
      ? (saved[0] as Mark).words
      : `${saved.length.toLocaleString("en-US")} checkpoints, of steps ${range.join(" to ")}`;
  return [...others, { kind: "checkpoint", words }];
}
