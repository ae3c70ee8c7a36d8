/** The theme's colours as a canvas needs them: read once, and again when the theme changes. */
import { useSyncExternalStore } from "react";
import type { MarkKind } from "@/lib/marks";
import { BASELINE, COLOURS, colourName, GREY, RAMP, RAMP_COLOURS } from "@/lib/palette";
import { TONES } from "./markShapes";

export interface ChartColours {
  curves: readonly string[];
  ramp: readonly string[];
  grey: string;
  grid: string;
  axis: string;
  panel: string;
  ink: string;
  marks: Readonly<Record<MarkKind, string>>;
}

let read: ChartColours | null = null;
const listeners = new Set<() => void>();
let observer: MutationObserver | null = null;

export function useChartColours(): ChartColours {
  return useSyncExternalStore(follow, colours);
}

export function colourAt({ curves, ramp, grey, ink }: ChartColours, slot: number): string {
  if (slot === BASELINE) return ink;
  if (slot === GREY) return grey;
  return (slot >= RAMP ? ramp[slot - RAMP] : curves[slot % COLOURS]) as string;
}

function colours(): ChartColours {
  if (read !== null) return read;
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(name).trim() || "#808080";
  read = {
    curves: Array.from({ length: COLOURS }, (_, slot) => of(colourName(slot))),
    ramp: Array.from({ length: RAMP_COLOURS }, (_, place) => of(colourName(RAMP + place))),
    grey: of(colourName(GREY)),
    grid: of("--chart-grid"),
    axis: of("--chart-axis"),
    panel: of("--panel"),
    ink: of("--ink"),
    marks: {
      preempted: of(TONES.preempted),
      memory: of(TONES.memory),
      restart: of(TONES.restart),
      checkpoint: of(TONES.checkpoint),
    },
  };
  return read;
}

function follow(listener: () => void): () => void {
  listeners.add(listener);
  if (observer === null) {
    read = null;
    observer = new MutationObserver(() => {
      read = null;
      for (const each of listeners) each();
    });
    observer.observe(document.documentElement, { attributeFilter: ["data-mantine-color-scheme"] });
  }
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    observer?.disconnect();
    observer = null;
  };
}
