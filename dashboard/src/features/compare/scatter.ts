/** One point per run: a setting, or another metric, against the figure of the chosen metric. */
import type { Summary } from "@/api/summaries";
import type { Described } from "@/lib/series";
import { linearTicks, logTicks, measureOf, tickLabels, valueRange } from "@/lib/ticks";
import { type Run, runsOf } from "./runs";
import { compared, endOf, numberOf } from "./settings";

/** `metric:NAME` is a metric; else it is a setting. */
export const OF_METRIC = "metric:";
/** From the smallest to the largest value, from which on an axis is logarithmic. */
const WIDE = 20;
const TICKS = 5;
const TICKS_LEAST = 3;
const NAMES_MAX = 6;

export interface Dot {
  run: Run;
  x: number;
  y: number;
  /** `x` in words. */
  value: string;
}

export interface Scale {
  title: string;
  isLog: boolean;
  range: readonly [number, number];
  ticks: readonly { at: number; label: string }[];
}

export interface Scatter {
  /** From left to right, equal ones from below. */
  dots: readonly Dot[];
  x: Scale;
  y: Scale;
  /** Shown runs without one of the two values, or with one that is not finite. */
  left: number;
}

export function metricOf(by: string | undefined): string | undefined {
  return by?.startsWith(OF_METRIC) ? by.slice(OF_METRIC.length) : undefined;
}

/** "best loss", or the name where the metric has no direction. */
export function figureTitle({ name, direction }: Described): string {
  return direction === "none" ? name : `best ${name}`;
}

export function scatterOf(
  runs: readonly Run[],
  by: string,
  metric: Described,
  series: readonly Described[],
  byJob: ReadonlyMap<string, ReadonlyMap<string, Summary>>,
): Scatter {
  const other = series.find(({ name }) => name === metricOf(by));
  const values = metricOf(by) === undefined ? settingValues(runs, by) : figuresOf(runs, other, byJob);
  const dots = runs.flatMap((run, place): Dot[] => {
    const { x, value } = values.at[place] ?? { x: null, value: "" };
    const isShown = x !== null && Number.isFinite(x) && run.figure !== null && Number.isFinite(run.figure);
    return isShown ? [{ run, x, y: run.figure as number, value }] : [];
  });
  const xs = dots.map(({ x }) => x);
  const named = values.names;
  return {
    dots: dots.sort((a, b) => a.x - b.x || a.y - b.y),
    x: named === null ? scaleOf(values.title, xs, other) : namesScale(values.title, named),
    y: scaleOf(
      figureTitle(metric),
      dots.map(({ y }) => y),
      metric,
    ),
    left: runs.length - dots.length,
  };
}

interface Values {
  title: string;
  /** Of texts: all of them, in their order. */
  names: readonly string[] | null;
  at: readonly { x: number | null; value: string }[];
}

function settingValues(runs: readonly Run[], path: string): Values {
  const own = runs.map(({ settings }) => settings.get(path));
  const known = [...new Set(own.flatMap((value) => value ?? []))].sort(compared);
  const areNumbers = known.every((value) => numberOf(value) !== null);
  const placeOf = (value: string) => (areNumbers ? numberOf(value) : known.indexOf(value));
  return {
    title: endOf(path),
    names: areNumbers ? null : known,
    at: own.map((value) => ({ x: value === undefined ? null : placeOf(value), value: value ?? "" })),
  };
}

function figuresOf(
  runs: readonly Run[],
  other: Described | undefined,
  byJob: ReadonlyMap<string, ReadonlyMap<string, Summary>>,
): Values {
  if (other === undefined) return { title: "", names: null, at: [] };
  const jobs = runs.map(({ job }) => job);
  const figures = runsOf(jobs, new Map(), other, byJob, undefined).map(({ figure }) => figure);
  return {
    title: figureTitle(other),
    names: null,
    at: figures.map((x) => ({ x, value: x === null ? "" : String(Number(x.toPrecision(5))) })),
  };
}

/** Logarithmic where values above zero lie far apart. */
function scaleOf(title: string, values: readonly number[], of: Described | undefined): Scale {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const isLog = low > 0 && high / low >= WIDE;
  const range = valueRange(low, high, isLog);
  const measure = measureOf(of?.kind ?? "number");
  const ticks = isLog ? logTicks(...range, TICKS) : linearTicks(...range, TICKS, measure, TICKS_LEAST);
  const labels = tickLabels(ticks, measure);
  return { title, isLog, range, ticks: ticks.map((at, place) => ({ at, label: labels[place] as string })) };
}

function namesScale(title: string, names: readonly string[]): Scale {
  const every = Math.ceil(names.length / NAMES_MAX);
  const ticks = names.flatMap((label, at) => (at % every === 0 ? [{ at, label }] : []));
  return { title, isLog: false, range: [-0.5, names.length - 0.5], ticks };
}

/** Place on a scale, 0 to 1. */
export function shareOn({ isLog, range }: Scale, value: number): number {
  const of = isLog ? Math.log : (each: number) => each;
  return (of(value) - of(range[0])) / (of(range[1]) - of(range[0]));
}
