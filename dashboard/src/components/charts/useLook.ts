/**
 * View settings of charts, stored in the page's address.
 *
 * An address without settings is the usual look on the page that a tab opens first: a link shows the same to every
 * user. On pages that are opened from within the dashboard it is the user's default, which is written to the address.
 */
import { createContext, useCallback, useContext, useEffect, useMemo, useRef, useState } from "react";
import {
  CHOSEN_USUAL,
  type Chosen,
  chosenIn,
  type DefaultLook,
  isPlain,
  keyOf,
  type Look,
  lookOf,
  USUAL,
} from "@/lib/look";
import { changeSettings, readSettings, toggled, useChartSettings } from "./settings";

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
  change: (part: Partial<Chosen>) => void;
  toggle: (list: "logarithmic" | "clipped", metric: string) => void;
  isDefault: boolean;
  makeDefault: () => void;
}

const LookContext = createContext<LookState | null>(null);
export const LookProvider = LookContext.Provider;

export function useLook(): LookState {
  const look = useContext(LookContext);
  if (look === null) throw new Error("useLook needs a LookProvider around it");
  return look;
}

export function useLookState(address: Look, write: (look: Look) => void, isFirst: boolean): LookState {
  const { look: own } = useChartSettings();
  const [chosen, setChosen] = useState<Chosen>(() => begin(address, isFirst));
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
  const look = lookOf(chosen);
  // A plain address would open with this user's default on the next page.
  const wanted = isPlain(look) && !isSame(own, USUAL) ? CHOSEN_USUAL : look;
  const wantedKey = keyOf(wanted);
  const isWritten = wantedKey === key && (isPlain(wanted) || !isPlain(address));
  // biome-ignore lint/correctness/useExhaustiveDependencies: by what they say, because both are made on each render
  useEffect(() => {
    if (isWritten) return;
    const timer = setTimeout(() => {
      written.current = wantedKey;
      latest.current(wanted);
    }, REST_MS);
    return () => clearTimeout(timer);
  }, [isWritten, wantedKey]);

  const change = useCallback((part: Partial<Chosen>) => {
    setChosen((before) => ({ ...before, ...part }));
  }, []);
  const toggle = useCallback((list: "logarithmic" | "clipped", metric: string) => {
    setChosen((before) => ({ ...before, [list]: toggled(before[list], metric) }));
  }, []);
  // The same as long as nothing changes: every card is rendered with another one.
  return useMemo(() => {
    const makeDefault = () => changeSettings({ look: defaultOf(chosen) });
    return { ...chosen, change, toggle, isDefault: isSame(own, chosen), makeDefault };
  }, [chosen, change, toggle, own]);
}

function begin(address: Look, isFirst: boolean): Chosen {
  return isPlain(address) && !isFirst ? { ...readSettings().look, zooms: {}, ranges: {} } : chosenIn(address);
}

function defaultOf({ smoothing, axis, logarithmic, clipped }: DefaultLook): DefaultLook {
  return { smoothing, axis, logarithmic, clipped };
}

function isSame(a: DefaultLook, b: DefaultLook): boolean {
  return JSON.stringify(defaultOf(a)) === JSON.stringify(defaultOf(b));
}
