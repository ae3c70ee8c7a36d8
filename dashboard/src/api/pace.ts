/**
 * Poll rate: a factor on every interval that the user chooses; 0 pauses. Stored by the browser.
 */
import { useSyncExternalStore } from "react";

export interface Pace {
  name: "live" | "calm" | "paused";
  factor: number;
}

export const PACES: Record<Pace["name"], Pace> = {
  live: { name: "live", factor: 1 },
  calm: { name: "calm", factor: 6 },
  paused: { name: "paused", factor: 0 },
};

const KEY = "lockstep.pace";
const listeners = new Set<() => void>();

export function readPace(): Pace {
  const name = localStorage.getItem(KEY);
  return name !== null && name in PACES ? PACES[name as Pace["name"]] : PACES.live;
}

export function setPace(name: Pace["name"]): void {
  localStorage.setItem(KEY, name);
  for (const listener of listeners) listener();
}

export function usePace(): Pace {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, readPace);
}
