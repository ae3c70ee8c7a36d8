/** Default columns, order and groups of the list, stored by the browser. Only *Make this my default* writes them. */
import { useSyncExternalStore } from "react";
import { type JobsView, readJobsView, USUAL } from "./view";

export type Habit = Pick<JobsView, "columns" | "sort" | "group">;

const KEY = "lockstep.jobs";
const listeners = new Set<() => void>();
let kept: { text: string | null; habit: Habit | null } = { text: null, habit: null };

/** Null where the usual view is the default. */
export function useHabit(): Habit | null {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, readHabit);
}

function readHabit(): Habit | null {
  const text = localStorage.getItem(KEY);
  if (text !== kept.text) kept = { text, habit: parsed(text) };
  return kept.habit;
}

export function makeHabit(view: JobsView): void {
  const habit = habitOf(view);
  if (isUsual(habit)) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, JSON.stringify(habit));
  for (const listener of listeners) listener();
}

/** The part of a view that can be a default. */
export function habitOf({ columns, sort, group }: JobsView): Habit {
  return readJobsView({ columns: columns === USUAL ? undefined : columns, sort, group });
}

export function isSameHabit(view: JobsView, habit: Habit | null): boolean {
  return JSON.stringify(habitOf(view)) === JSON.stringify(habitOf(habit ?? {}));
}

/** True for a view without columns, order and groups of its own. */
export function isUsual({ columns, sort, group }: Habit): boolean {
  return columns === undefined && sort === undefined && group === undefined;
}

/** A view as its address says it: the usual one is named where the own default is another one. */
export function named(view: JobsView, habit: Habit | null): JobsView {
  return isUsual(view) && habit !== null ? { ...view, columns: USUAL } : view;
}

/** Stored habits of another version are used only where they are valid. */
function parsed(text: string | null): Habit | null {
  try {
    const found = habitOf(readJobsView(JSON.parse(text ?? "{}") ?? {}));
    return isUsual(found) ? null : found;
  } catch {
    return null;
  }
}
