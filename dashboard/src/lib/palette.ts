/**
 * Which colour a job's lines have: one of six that also colour-blind people tell apart, then the same dashed.
 *
 * A job keeps its slot while others come and go, so that what was blue stays blue. Slots beside these are the baseline,
 * the grey of many lines, and a ramp of colours by a value.
 */
export const COLOURS = 6;
/** Lines that six colours and their dashes tell apart. */
export const TOLD_APART = 24;
/** The run that others are compared with: dashed, in the colour of the text. */
export const BASELINE = -1;
/** One of very many. */
export const GREY = -2;
/** The first colour of the ramp; the others follow. */
export const RAMP = 1_000;
export const RAMP_COLOURS = 16;
const DASHES: readonly (readonly number[])[] = [[], [6, 4], [2, 3], [10, 3, 2, 3]];

const BASELINE_DASH: readonly number[] = [5, 3];

/** The slot of a share of the ramp, 0 to 1. */
export function rampSlot(share: number): number {
  return RAMP + Math.max(0, Math.min(RAMP_COLOURS - 1, Math.floor(share * RAMP_COLOURS + 1e-9)));
}

/** The CSS variable with the slot's colour. */
export function colourName(slot: number): string {
  if (slot === BASELINE) return "--ink";
  if (slot === GREY) return "--line-strong";
  if (slot >= RAMP) return `--ramp-${slot - RAMP + 1}`;
  return `--curve-${(slot % COLOURS) + 1}`;
}

export function dashOf(slot: number): readonly number[] {
  if (slot === BASELINE) return BASELINE_DASH;
  if (slot === GREY || slot >= RAMP) return [];
  return DASHES[Math.floor(slot / COLOURS) % DASHES.length] as readonly number[];
}

/** A slot for each id: the one it had, else the lowest that is free. */
export function slotsOf(ids: readonly string[], before: ReadonlyMap<string, number>): Map<string, number> {
  const slots = new Map<string, number>();
  for (const id of ids) {
    const had = before.get(id);
    if (had !== undefined) slots.set(id, had);
  }
  const taken = new Set(slots.values());
  let free = 0;
  for (const id of ids) {
    if (slots.has(id)) continue;
    while (taken.has(free)) free += 1;
    taken.add(free);
    slots.set(id, free);
  }
  return slots;
}
