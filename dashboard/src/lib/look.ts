/** How charts are looked at, as an address keeps it: `?smoothing=0.6&axis=wall&log=train/loss`. What is usual is left out. */
import { AXES, type Axis } from "./axes";
import { asList, listed } from "./listed";

export interface Look {
  /** Left out where it is off. */
  smoothing?: number;
  /** Left out where it is the step. */
  axis?: Exclude<Axis, "step">;
  /** Metrics on a logarithmic axis. */
  log?: string | string[];
}

/** The same as a person chooses it. */
export interface Chosen {
  smoothing: number;
  axis: Axis;
  logarithmic: readonly string[];
}

/** An address of a page has room for so many, and nobody looks at more. */
const LOG_MAX = 50;

export function readLook({ smoothing, axis, log }: Record<string, unknown>): Look {
  const known = AXES.find((name) => name === axis);
  return lookOf({
    smoothing: typeof smoothing === "number" && smoothing > 0 && smoothing < 1 ? smoothing : 0,
    axis: known ?? "step",
    logarithmic: listed(log),
  });
}

export function lookOf({ smoothing, axis, logarithmic }: Chosen): Look {
  const log = asList(logarithmic.slice(0, LOG_MAX));
  return {
    ...(smoothing === 0 ? {} : { smoothing }),
    ...(axis === "step" ? {} : { axis }),
    ...(log === undefined ? {} : { log }),
  };
}

export function chosenIn({ smoothing, axis, log }: Look): Chosen {
  return { smoothing: smoothing ?? 0, axis: axis ?? "step", logarithmic: listed(log) };
}

export function isSameLook(a: Look, b: Look): boolean {
  const key = ({ smoothing, axis, log }: Look) => JSON.stringify([smoothing ?? 0, axis ?? "step", listed(log)]);
  return key(a) === key(b);
}

/** Nothing is said: a person's own habits hold. */
export function isPlain({ smoothing, axis, log }: Look): boolean {
  return smoothing === undefined && axis === undefined && log === undefined;
}
