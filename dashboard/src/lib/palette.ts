/**
 * Which colour a job's lines have: one of six that also colour-blind people tell apart, then the same dashed.
 *
 * A job keeps its slot while others come and go, so that what was blue stays blue.
 */
export const COLOURS = 6;
const DASHES: readonly (readonly number[])[] = [[], [6, 4], [2, 3], [10, 3, 2, 3]];

/** The CSS variable with the slot's colour. */
export function colourName(slot: number): string {
  return `--curve-${(slot % COLOURS) + 1}`;
}

export function dashOf(slot: number): readonly number[] {
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
