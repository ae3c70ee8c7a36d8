/** Where an axis has its ticks, and how they read: round numbers, round binary sizes, round durations, powers of ten. */

import { scientific } from "./format";
import type { Metadata } from "./series";

/** What values of an axis are. */
export type Measure = "number" | "bytes" | "duration" | "count";

export function measureOf(kind: Metadata["kind"]): Measure {
  if (kind === "seconds") return "duration";
  return kind === "percent" ? "number" : kind;
}

const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400];

/** The smallest round step that makes at most `most` steps of `range`. */
export function roundStep(range: number, most: number, measure: Measure): number {
  // There is no half of what is counted.
  const least = Math.max(range / Math.max(1, most), measure === "count" ? 1 : 0);
  if (measure === "duration" && least >= 1) {
    const found = SECONDS.find((seconds) => seconds >= least);
    return found ?? 86_400 * roundStep(range / 86_400, most, "number");
  }
  // Sizes are powers of two: 256 MiB, not 250,000,000 bytes, and 1 GiB after 512 MiB, not 1,000 MiB.
  if (measure === "bytes" && least >= 1) return 2 ** Math.ceil(Math.log2(least) - 1e-9);
  const size = 10 ** Math.floor(Math.log10(least));
  const lead = least / size;
  const round = lead <= 1.000_001 ? 1 : lead <= 2.000_001 ? 2 : lead <= 5.000_001 ? 5 : 10;
  return round * size;
}

/**
 * Round values from `min` to `max`, at most `most` + 1 of them, unless that leaves fewer than `least`: then the steps are
 * the next smaller round ones.
 */
export function linearTicks(min: number, max: number, most: number, measure: Measure = "number", least = 0): number[] {
  if (!(max > min) || !Number.isFinite(max - min)) return [min];
  if (measure === "bytes") {
    // Sizes that differ by little are round in the unit of the largest: 65.20 GiB, not 66,816 MiB.
    const unit = unitOfBytes(Math.max(Math.abs(min), Math.abs(max)), (max - min) / Math.max(1, most));
    if (max - min < (unit * Math.max(1, most)) / 16)
      return linearTicks(min / unit, max / unit, most, "number", least).map((tick) => tick * unit);
  }
  let ticks = multiples(min, max, roundStep(max - min, most, measure));
  for (let more = most + 1; ticks.length < least && more <= 3 * most; more += 1)
    ticks = multiples(min, max, roundStep(max - min, more, measure));
  return ticks;
}

function multiples(min: number, max: number, step: number): number[] {
  const ticks: number[] = [];
  for (let count = Math.ceil(min / step - 1e-9) + 0; count * step <= max + step * 1e-9; count += 1) {
    // 3 × 0.1 is not 0.3: a tick is a round number, and is to read as one.
    ticks.push(Number.isInteger(step) ? count * step : Number((count * step).toPrecision(12)));
  }
  return ticks;
}

/** Unit of the largest, or a smaller one where steps would take more than four decimals. */
function unitOfBytes(largest: number, step: number): number {
  let unit = 1_024 ** Math.min(5, Math.floor(Math.log(Math.max(1, largest)) / Math.log(1_024) + 1e-9));
  while (unit > 1 && step * 1e4 < unit * (1 - 1e-9)) unit /= 1_024;
  return unit;
}

/** Powers of ten where there are several, else round numbers between them. */
export function logTicks(min: number, max: number, most: number): number[] {
  if (!(min > 0) || !(max > min)) return [min];
  const first = Math.ceil(Math.log10(min) - 1e-9);
  const last = Math.floor(Math.log10(max) + 1e-9);
  const powers = last - first + 1;
  if (powers >= 3) {
    const every = Math.ceil(powers / Math.max(1, most));
    return Array.from({ length: Math.floor((powers - 1) / every) + 1 }, (_, index) => power(first + index * every));
  }
  if (max / min < 5) return linearTicks(min, max, most, "number", 3);
  const ticks: number[] = [];
  for (let exponent = first - 1; exponent <= last; exponent += 1)
    for (const lead of [1, 2, 5]) {
      const tick = Number((lead * power(exponent)).toPrecision(12));
      if (tick >= min * (1 - 1e-9) && tick <= max * (1 + 1e-9)) ticks.push(tick);
    }
  return ticks.length < 3 ? linearTicks(min, max, most, "number", 3) : ticks;
}

function power(exponent: number): number {
  return Number(`1e${exponent}`);
}

/** Labels with as many digits as tell neighbours apart, and no more. */
export function tickLabels(ticks: readonly number[], measure: Measure = "number"): string[] {
  const largest = Math.max(...ticks.map(Math.abs), 0);
  if (measure === "duration") return ticks.map(clock);
  if (measure === "bytes" && largest >= 1_024) {
    const apart = Math.min(...ticks.slice(1).map((tick, index) => Math.abs(tick - (ticks[index] as number))));
    const unit = unitOfBytes(largest, apart);
    return plain(
      ticks.map((tick) => tick / unit),
      ["", " KiB", " MiB", " GiB", " TiB", " PiB"][Math.round(Math.log(unit) / Math.log(1_024))] as string,
    );
  }
  if (largest !== 0 && largest < 1e-3) return ticks.map(scientific);
  // Powers of ten far apart share no number of decimals.
  const smallest = Math.min(...ticks.filter((tick) => tick !== 0).map(Math.abs));
  if (ticks.length > 1 && largest / smallest >= 1e4 && smallest < 1e-3) return ticks.map(scientific);
  if (largest >= 1e15) return ticks.map(scientific);
  for (const [size, sign] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e4, "k"],
  ] as const)
    if (largest >= size) {
      const unit = sign === "k" ? 1e3 : size;
      if (smallest >= unit / 1_000)
        return plain(
          ticks.map((tick) => tick / unit),
          ` ${sign}`,
        );
      return ticks.map(scientific);
    }
  return plain(ticks, "");
}

function plain(values: readonly number[], suffix: string): string[] {
  const decimals = Math.max(0, ...values.map(decimalsOf));
  const even = Math.max(...values.map(Math.abs), 0) < 1e4 && isEven(values);
  return values.map((value) => (value === 0 ? "0" : (even ? value.toFixed(decimals) : String(value)) + suffix));
}

/** On a logarithmic axis 0.001 and 100 stand side by side: each then has its own digits. */
function isEven(values: readonly number[]): boolean {
  const sizes = values.filter((value) => value !== 0).map(Math.abs);
  return sizes.length === 0 || Math.max(...sizes) / Math.min(...sizes) < 1_000;
}

function decimalsOf(value: number): number {
  const [, digits = ""] = String(Number(value.toPrecision(10))).split(".");
  return digits.includes("e") ? 6 : Math.min(6, digits.length);
}

/** 45 s, 1:30 min, 2:05 h, 3 d 4 h. */
function clock(seconds: number): string {
  const sign = seconds < 0 ? "−" : "";
  const whole = Math.abs(seconds);
  if (whole < 60) return `${sign}${Number(whole.toPrecision(6))} s`;
  if (whole < 3_600) return `${sign}${parts(whole, 60)} min`;
  if (whole < 172_800) return `${sign}${parts(whole / 60, 60)} h`;
  const hours = Math.round((whole % 86_400) / 3_600);
  return `${sign}${Math.floor(whole / 86_400)} d${hours === 0 ? "" : ` ${hours} h`}`;
}

function parts(value: number, of: number): string {
  const rest = Math.round(value % of);
  return rest === 0 ? String(Math.round(value / of)) : `${Math.floor(value / of)}:${String(rest).padStart(2, "0")}`;
}

/** Round moments of the reader's own clock, in seconds since the epoch. */
export function wallTicks(min: number, max: number, most: number): number[] {
  const zone = -60 * new Date(min * 1_000).getTimezoneOffset();
  return linearTicks(min + zone, max + zone, most, "duration").map((tick) => tick - zone);
}

/** 14:05, with seconds where ticks are closer than a minute, with the day where they are more than a day apart. */
export function wallLabels(ticks: readonly number[]): string[] {
  const two = (part: number) => String(part).padStart(2, "0");
  const apart = ticks.length > 1 ? (ticks[1] as number) - (ticks[0] as number) : 60;
  const isLong = ticks.length > 1 && (ticks.at(-1) as number) - (ticks[0] as number) >= 86_400;
  return ticks.map((tick) => {
    const at = new Date(tick * 1_000);
    const day = `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    if (apart >= 86_400) return day;
    const time = `${two(at.getHours())}:${two(at.getMinutes())}${apart < 60 ? `:${two(at.getSeconds())}` : ""}`;
    return isLong ? `${day} ${time}` : time;
  });
}

/** Values that a series can have. */
export function limitsOf([low, high]: Metadata["domain"]): readonly [number, number] {
  return [low ?? Number.NEGATIVE_INFINITY, high ?? Number.POSITIVE_INFINITY];
}

/**
 * Bounds of a value axis with a little air; never empty, and above zero where it is logarithmic. The air ends at
 * `limits`, unless values lie beyond them.
 */
export function valueRange(
  min: number,
  max: number,
  isLog: boolean,
  limits = limitsOf([null, null]),
): [number, number] {
  if (isLog) {
    if (!(max > 0)) return [0.1, 1];
    const low = min > 0 ? min : max / 1e3;
    const air = Math.max(1.05, (max / low) ** 0.05);
    return [low / air, max * air];
  }
  if (!(max >= min)) return [0, 1];
  const air = max > min ? (max - min) * 0.05 : Math.abs(max) * 0.05 || 1;
  return [
    min < limits[0] ? min - air : Math.max(min - air, limits[0]),
    max > limits[1] ? max + air : Math.min(max + air, limits[1]),
  ];
}
