/** How charts are looked at, in the page's address too: whoever is sent it sees the same curves. */
import { useEffect, useRef } from "react";
import { chosenIn, isPlain, isSameLook, type Look, lookOf } from "@/lib/look";
import { changeSettings, useChartSettings } from "./settings";

/** A slider that is drawn along is one change, not a hundred. */
const REST_MS = 300;

/** What `write` takes away from an address, before the look that it is given is put there. */
export const NO_LOOK = { smoothing: undefined, axis: undefined, log: undefined } satisfies Look;

export function useLookInAddress(address: Look, write: (look: Look) => void): void {
  const settings = useChartSettings();
  const isTaken = useRef(false);
  const latest = useRef(write);
  latest.current = write;
  const wanted = lookOf(settings);
  // By what they say, because both are made anew on each render, and a timer that begins anew never ends.
  const said = JSON.stringify([address, wanted]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `said` has all of both
  useEffect(() => {
    const isFirst = !isTaken.current;
    isTaken.current = true;
    // An address that says how to look is obeyed once; from then on it follows what the person chooses.
    if (isFirst && !isPlain(address)) {
      changeSettings(chosenIn(address));
      return;
    }
    if (isSameLook(address, wanted)) return;
    const timer = setTimeout(() => latest.current(wanted), REST_MS);
    return () => clearTimeout(timer);
  }, [said]);
}
