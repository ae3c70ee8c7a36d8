/**
 * The user's chart settings, stored by the browser: the default look, marks, pinned, folded.
 */
import { useSyncExternalStore } from "react";
import { AXES } from "@/lib/axes";
import { type DefaultLook, USUAL } from "@/lib/look";

export interface ChartSettings {
  /** Changed by *Make this my default* alone. */
  look: DefaultLook;
  pinned: readonly string[];
  folded: readonly string[];
  /** Restarts, checkpoints and the like below a job's curves. */
  marks: boolean;
}

export const SMOOTHING_MOST = 0.999;
const KEY = "lockstep.charts";
const PLAIN: ChartSettings = {
  look: USUAL,
  pinned: [],
  folded: ["system"],
  marks: true,
};
const listeners = new Set<() => void>();
let kept: { text: string | null; settings: ChartSettings } = { text: null, settings: PLAIN };

export function useChartSettings(): ChartSettings {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, readSettings);
}

export function changeSettings(change: Partial<ChartSettings>): void {
  localStorage.setItem(KEY, JSON.stringify({ ...readSettings(), ...change }));
  for (const listener of listeners) listener();
}

/** In the list if it was not, and out of it if it was. */
export function toggled(list: readonly string[], name: string): string[] {
  return list.includes(name) ? list.filter((each) => each !== name) : [...list, name];
}

export function readSettings(): ChartSettings {
  const text = localStorage.getItem(KEY);
  if (text !== kept.text) kept = { text, settings: parsed(text) };
  return kept.settings;
}

/** Stored settings of another version are used only where they are valid. */
function parsed(text: string | null): ChartSettings {
  let found: Partial<Record<keyof ChartSettings, unknown>> = {};
  try {
    found = JSON.parse(text ?? "{}") ?? {};
  } catch {
    return PLAIN;
  }
  return {
    look: lookIn(found.look),
    pinned: list(found.pinned, PLAIN.pinned),
    folded: list(found.folded, PLAIN.folded),
    marks: found.marks !== false,
  };
}

function list(value: unknown, otherwise: readonly string[]): readonly string[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === "string") : otherwise;
}

function lookIn(value: unknown): DefaultLook {
  const found: Partial<Record<keyof DefaultLook, unknown>> = typeof value === "object" && value !== null ? value : {};
  return {
    smoothing: smoothingOf(found.smoothing ?? 0),
    axis: AXES.find((axis) => axis === found.axis) ?? "step",
    logarithmic: list(found.logarithmic, []),
    clipped: list(found.clipped, []),
  };
}

/** Return a valid smoothing weight; 0 for an invalid one. */
export function smoothingOf(value: unknown): number {
  const weight = Number(value);
  return Number.isFinite(weight) ? Math.min(SMOOTHING_MOST, Math.max(0, weight)) : 0;
}
