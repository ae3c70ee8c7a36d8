/** Colours of compared runs: by run, by group, or by the value of a setting. */
import { GREY, RAMP, RAMP_COLOURS, rampSlot, TOLD_APART } from "@/lib/palette";
import { compared, numberOf, type Settings } from "./settings";

/** Values of a setting from which on a ramp is by their logarithm: from the smallest to the largest. */
const WIDE = 20;

export interface Ramp {
  low: string;
  high: string;
  /** Of each job; those without a value are grey. */
  slots: ReadonlyMap<string, number>;
}

/** Numbers by their size, texts by their order; null where no job has a value. */
export function rampOf(path: string, settings: ReadonlyMap<string, Settings>): Ramp | null {
  const known = [...settings].flatMap(([id, own]) => {
    const value = own.get(path);
    return value === undefined ? [] : [{ id, value }];
  });
  const values = [...new Set(known.map(({ value }) => value))].sort(compared);
  const [low, high] = [values[0], values.at(-1)];
  if (low === undefined || high === undefined) return null;
  const share = shareOf(values);
  const slots = new Map([...settings.keys()].map((id) => [id, GREY]));
  for (const { id, value } of known) slots.set(id, rampSlot(share(value)));
  return { low, high, slots };
}

function shareOf(values: readonly string[]): (value: string) => number {
  const numbers = values.map(numberOf);
  const [low, high] = [numbers[0] ?? 0, numbers.at(-1) ?? 0];
  if (numbers.some((each) => each === null) || low === high) {
    const last = Math.max(1, values.length - 1);
    return (value) => values.indexOf(value) / last;
  }
  const scale = low > 0 && high / low >= WIDE ? Math.log : (each: number) => each;
  return (value) => (scale(numberOf(value) as number) - scale(low)) / (scale(high) - scale(low));
}

/** The slots of runs that have none by a setting: one for each as long as they are told apart. */
export function plainSlots(ids: readonly string[], slots: ReadonlyMap<string, number>): Map<string, number> {
  return new Map(ids.map((id) => [id, ids.length > TOLD_APART ? GREY : (slots.get(id) ?? 0)]));
}

/** The ramp as the background of an element. */
export const GRADIENT = `linear-gradient(90deg, ${Array.from(
  { length: RAMP_COLOURS },
  (_, place) => `var(--ramp-${rampSlot(place / RAMP_COLOURS) - RAMP + 1})`,
).join(", ")})`;
