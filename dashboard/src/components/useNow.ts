/** The current time, for ages and durations: one timer for the whole page. */
import { useSyncExternalStore } from "react";

const TICK_MS = 1_000;

let now = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

/** Rendered again every second, or less often with `everySeconds`. */
export function useNow(everySeconds = 1): number {
  return useSyncExternalStore(follow, () => {
    const at = current();
    return everySeconds === 1 ? at : Math.floor(at / 1_000 / everySeconds) * everySeconds * 1_000;
  });
}

/** Without a running timer, the time of the last tick may be long ago. */
function current(): number {
  if (timer === undefined && Math.abs(Date.now() - now) >= TICK_MS) now = Date.now();
  return now;
}

function follow(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(tick, TICK_MS);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

function tick(): void {
  now = Date.now();
  for (const listener of listeners) listener();
}
