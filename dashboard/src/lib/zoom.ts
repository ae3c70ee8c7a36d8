/** The part of an axis that is looked at: the steps it holds, the same part along another axis, nearer, further, aside. */
import { type Axis, type PerStep, unitsPerStep } from "./axes";

export interface Zoom {
  from: number;
  to: number;
}

/** The steps that a part holds, over jobs whose steps are of different sizes; null along time. */
export function stepsIn(zoom: Zoom, axis: Axis, jobs: readonly PerStep[]): Zoom | null {
  let from = Number.POSITIVE_INFINITY;
  let to = 0;
  for (const job of jobs) {
    const units = unitsPerStep(axis, job);
    if (units === null) return null;
    from = Math.min(from, Math.floor(zoom.from / units));
    to = Math.max(to, Math.ceil(zoom.to / units));
  }
  return jobs.length === 0 ? null : { from: Math.max(0, from), to };
}

/** The same steps along another axis; null where they lie elsewhere for each job, or along time. */
export function onOtherAxis(zoom: Zoom, before: Axis, after: Axis, jobs: readonly PerStep[]): Zoom | null {
  const factors = new Set(
    jobs.map((job) => {
      const [old, now] = [unitsPerStep(before, job), unitsPerStep(after, job)];
      return old === null || now === null ? null : now / old;
    }),
  );
  const [factor] = factors;
  return factors.size === 1 && factor != null ? { from: zoom.from * factor, to: zoom.to * factor } : null;
}

/** So many times as wide, around its middle, within `all`; null where that is all of it. Never narrower than `least`. */
export function widened(zoom: Zoom, all: Zoom, times: number, least: number): Zoom | null {
  const width = Math.max(least, (zoom.to - zoom.from) * times);
  const room = all.to - all.from;
  if (width >= room * (1 - 1e-9)) return null;
  const middle = (zoom.from + zoom.to) / 2;
  return at(middle - width / 2, width, all);
}

/** Aside by a share of its width, as far as `all` goes. */
export function moved(zoom: Zoom, all: Zoom, share: number): Zoom {
  const width = zoom.to - zoom.from;
  return at(zoom.from + width * share, width, all);
}

function at(from: number, width: number, all: Zoom): Zoom {
  const start = Math.max(all.from, Math.min(all.to - width, from));
  return { from: start, to: start + width };
}
