/**
 * View settings of charts: from the page's address if present, else from the user's settings;
 * stored in the address.
 */
import { createContext, useCallback, useContext, useEffect, useMemo, useRef, useState } from "react";
import { type Chosen, chosenIn, HABITS, isPlain, keyOf, type Look, lookOf } from "@/lib/look";
import { changeSettings, readSettings, toggled } from "./settings";

/** A slider that is drawn along is one change, not a hundred. */
const REST_MS = 300;

/** Keys that `write` removes from an address before it adds the new settings. */
export const NO_LOOK = {
  smoothing: undefined,
  axis: undefined,
  log: undefined,
  clip: undefined,
  zoom: undefined,
  y: undefined,
} satisfies Look;

export interface LookState extends Chosen {
  /** Apply the user's change; part of it also applies to other pages. */
  change: (part: Partial<Chosen>) => void;
  toggle: (list: "logarithmic" | "clipped", metric: string) => void;
}

const LookContext = createContext<LookState | null>(null);
export const LookProvider = LookContext.Provider;

export function useLook(): LookState {
  const look = useContext(LookContext);
  if (look === null) throw new Error("useLook needs a LookProvider around it");
  return look;
}

export function useLookState(address: Look, write: (look: Look) => void): LookState {
  const [chosen, setChosen] = useState<Chosen>(() => begin(address));
  const key = keyOf(address);
  const [seen, setSeen] = useState(key);
  const written = useRef(key);
  if (seen !== key) {
    setSeen(key);
    // Another view, by the back button or by a link; not the one that was written from here.
    if (key !== written.current && !isPlain(address)) setChosen(chosenIn(address));
  }
  const latest = useRef(write);
  latest.current = write;
  const wanted = lookOf(chosen);
  const wantedKey = keyOf(wanted);
  // biome-ignore lint/correctness/useExhaustiveDependencies: by what they say, because both are made on each render
  useEffect(() => {
    if (wantedKey === key) return;
    const timer = setTimeout(() => {
      written.current = wantedKey;
      latest.current(wanted);
    }, REST_MS);
    return () => clearTimeout(timer);
  }, [key, wantedKey]);

  const change = useCallback((part: Partial<Chosen>) => {
    setChosen((before) => ({ ...before, ...part }));
    const habits = Object.fromEntries(HABITS.filter((name) => name in part).map((name) => [name, part[name]]));
    if (Object.keys(habits).length > 0) changeSettings(habits);
  }, []);
  const toggle = useCallback((list: "logarithmic" | "clipped", metric: string) => {
    setChosen((before) => ({ ...before, [list]: toggled(before[list], metric) }));
    // Only this metric: the others of a link are not this user's settings.
    changeSettings({ [list]: toggled(readSettings()[list], metric) });
  }, []);
  // The same as long as nothing changes: every card is rendered with another one.
  return useMemo(() => ({ ...chosen, change, toggle }), [chosen, change, toggle]);
}

function begin(address: Look): Chosen {
  if (!isPlain(address)) return chosenIn(address);
  const { smoothing, axis, logarithmic, clipped } = readSettings();
  return { smoothing, axis, logarithmic, clipped, zooms: {}, ranges: {} };
}
