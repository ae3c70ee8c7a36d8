/**
 * Touch gestures on a chart: a horizontal drag zooms, a double tap resets. uPlot supports mice
 * only.
 *
 * A vertical drag scrolls the page: the browser receives `touch-action` and handles such gestures.
 * A single tap arrives as a mouse move and shows the values under it.
 */
import type uPlot from "uplot";

/** A finger trembles by so many pixels. */
const STILL = 10;
const TWICE_MS = 350;
const TWICE_APART = 30;

interface Gesture {
  finger: number;
  start: number;
  isDrawn: boolean;
}

/**
 * Call `reset` on a double tap; a drag becomes uPlot's selection. Return a function that ends it.
 */
export function followFingers(
  plot: Pick<uPlot, "over" | "setSelect">,
  reset: () => void,
  now: () => number = () => performance.now(),
): () => void {
  const { over } = plot;
  let gesture: Gesture | null = null;
  let tap = { at: Number.NEGATIVE_INFINITY, x: 0 };

  const placeOf = ({ clientX }: PointerEvent) =>
    Math.max(0, Math.min(over.clientWidth, clientX - over.getBoundingClientRect().left));
  const select = (from: number, to: number, isDone: boolean) =>
    plot.setSelect({ left: Math.min(from, to), top: 0, width: Math.abs(to - from), height: over.clientHeight }, isDone);
  const drop = () => {
    if (gesture?.isDrawn) select(0, 0, false);
    gesture = null;
  };

  const down = (event: PointerEvent) => {
    if (event.pointerType === "mouse") return;
    // A second finger is a pinch, which is the browser's.
    if (gesture !== null || !event.isPrimary) return drop();
    gesture = { finger: event.pointerId, start: placeOf(event), isDrawn: false };
  };
  const move = (event: PointerEvent) => {
    if (gesture?.finger !== event.pointerId) return;
    const x = placeOf(event);
    if (Math.abs(x - gesture.start) >= STILL) gesture.isDrawn = true;
    if (gesture.isDrawn) select(gesture.start, x, false);
  };
  const up = (event: PointerEvent) => {
    if (gesture?.finger !== event.pointerId) return;
    const { start, isDrawn } = gesture;
    const x = placeOf(event);
    gesture = null;
    if (isDrawn) {
      // Back where it began: nothing was chosen.
      if (Math.abs(x - start) < STILL) select(0, 0, false);
      else select(start, x, true);
      return;
    }
    const at = now();
    if (at - tap.at <= TWICE_MS && Math.abs(x - tap.x) <= TWICE_APART) {
      tap = { at: Number.NEGATIVE_INFINITY, x: 0 };
      reset();
    } else tap = { at, x };
  };
  const handlers = { pointerdown: down, pointermove: move, pointerup: up, pointercancel: drop } as const;
  for (const [name, handler] of Object.entries(handlers)) over.addEventListener(name, handler as EventListener);
  return () => {
    for (const [name, handler] of Object.entries(handlers)) over.removeEventListener(name, handler as EventListener);
  };
}
