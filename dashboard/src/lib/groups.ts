/** Means of groups of runs: each run is a line between its points, and counts where its points go. */
import { type Curve, firstAtLeast } from "./curves";
import type { Line } from "./lines";
import { BASELINE } from "./palette";

/** Jobs that are drawn as one line. */
export interface Group {
  /** As the `job` of its line. */
  key: string;
  name: string;
  slot: number;
  jobs: readonly string[];
}

/** The finite points of one run along an axis, without what a later attempt ran again. `x` ascends. */
export interface Path {
  x: number[];
  y: number[];
  step: number[];
  /** Seconds since the run began. */
  elapsed: number[];
}

export interface Mean {
  x: Float64Array;
  mean: Float64Array;
  low: Float64Array;
  high: Float64Array;
  step: Float64Array;
  elapsed: Float64Array;
}

/** Of the mean of a group. */
const PLACES = 400;

/** The lines of one job, an attempt each. */
export function pathOf(lines: readonly Line[]): Path {
  const path: Path = { x: [], y: [], step: [], elapsed: [] };
  for (const { curve, x, smoothed, end, origin } of [...lines].sort((a, b) => a.curve.attempt - b.curve.attempt))
    for (let index = 0; index < end; index += 1) {
      const value = (smoothed ?? curve.value)[index] as number;
      const at = x[index] as number;
      if (!Number.isFinite(value) || at < (path.x.at(-1) ?? Number.NEGATIVE_INFINITY)) continue;
      // Of several points in one place the last one counts.
      const place = at === path.x.at(-1) ? path.x.length - 1 : path.x.length;
      path.x[place] = at;
      path.y[place] = value;
      path.step[place] = curve.step[index] as number;
      path.elapsed[place] = (curve.time[index] as number) - origin;
    }
  return path;
}

/**
 * Mean and range of paths, at all their places, or at so many that are evenly apart.
 *
 * At each place those count that have a point there, or points before and after it.
 */
export function meanOf(paths: readonly Path[], placesMax = PLACES): Mean {
  const x = placesOf(paths, placesMax);
  const column = () => new Float64Array(x.length);
  const mean: Mean = { x, mean: column(), low: column(), high: column(), step: column(), elapsed: column() };
  const count = column();
  mean.low.fill(Number.POSITIVE_INFINITY);
  mean.high.fill(Number.NEGATIVE_INFINITY);
  for (const path of paths) {
    if (path.x.length === 0) continue;
    const last = path.x[path.x.length - 1] as number;
    let after = 0;
    for (let place = firstAtLeast(x, path.x[0] as number); place < x.length; place += 1) {
      const at = x[place] as number;
      if (at > last) break;
      while ((path.x[after] as number) < at) after += 1;
      const value = between(path.x, path.y, after, at);
      count[place] = (count[place] as number) + 1;
      mean.mean[place] = (mean.mean[place] as number) + value;
      mean.step[place] = (mean.step[place] as number) + between(path.x, path.step, after, at);
      mean.elapsed[place] = (mean.elapsed[place] as number) + between(path.x, path.elapsed, after, at);
      mean.low[place] = Math.min(mean.low[place] as number, value);
      mean.high[place] = Math.max(mean.high[place] as number, value);
    }
  }
  for (const sums of [mean.mean, mean.step, mean.elapsed])
    for (let place = 0; place < sums.length; place += 1)
      sums[place] = (sums[place] as number) / (count[place] as number);
  return mean;
}

/** The value at a place between the point before `after` and the one there. */
function between(x: readonly number[], y: readonly number[], after: number, at: number): number {
  const [right, up] = [x[after] as number, y[after] as number];
  if (right === at || after === 0) return up;
  const [left, down] = [x[after - 1] as number, y[after - 1] as number];
  return down + ((at - left) / (right - left)) * (up - down);
}

function placesOf(paths: readonly Path[], most: number): Float64Array {
  const all = Float64Array.from(new Set(paths.flatMap(({ x }) => x))).sort();
  if (all.length <= most) return all;
  const [first, last] = [all[0] as number, all[all.length - 1] as number];
  const even = Float64Array.from({ length: most }, (_, place) => first + ((last - first) * place) / (most - 1));
  even[most - 1] = last;
  // A place between the end of one run and the beginning of the next is in none of them.
  return even.filter((at) =>
    paths.some(({ x }) => x.length > 0 && at >= (x[0] as number) && at <= (x.at(-1) as number)),
  );
}

/** In place of the lines of their jobs, a line of each group that has points; those of other jobs and of the baseline stay. */
export function linesOfGroups(lines: readonly Line[], groups: readonly Group[]): Line[] {
  const byJob = new Map<string, Line[]>();
  for (const line of lines) byJob.set(line.job, [...(byJob.get(line.job) ?? []), line]);
  const grouped = new Set(groups.flatMap(({ jobs }) => jobs));
  const means = groups.flatMap(({ key, name, slot, jobs }) => {
    const own = jobs.flatMap((job) => byJob.get(job) ?? []);
    const paths = jobs.map((job) => pathOf(byJob.get(job) ?? [])).filter(({ x }) => x.length > 0);
    if (own[0] === undefined || paths.length === 0) return [];
    const { x, mean, low, high, step, elapsed } = meanOf(paths);
    const curve: Curve = {
      name: own[0].curve.name,
      unit: own[0].curve.unit,
      attempt: 1,
      // More than its places, so that its range is drawn.
      count: x.length + 1,
      nonFinite: 0,
      perPlace: 1,
      step: step.map(Math.round),
      time: elapsed,
      value: mean,
      min: low,
      max: high,
      span: null,
    };
    const line: Line = {
      job: key,
      name: `${name} (mean of ${paths.length})`,
      slot,
      curve,
      x,
      smoothed: null,
      end: x.length,
      isRestart: false,
      origin: 0,
      isMean: true,
    };
    return [line];
  });
  return [...lines.filter(({ job, slot }) => slot === BASELINE || !grouped.has(job)), ...means];
}
