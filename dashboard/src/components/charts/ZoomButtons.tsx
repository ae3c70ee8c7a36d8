/** Zooming without a mouse: nearer, further, aside and back, as buttons and as keys. */
import { useKeys } from "@/app/keys";
import { Button } from "@/components/Button";
import { isTime } from "@/lib/axes";
import { extentOfX } from "@/lib/lines";
import { moved, widened } from "@/lib/zoom";
import type { Drawing } from "./Plot";
import classes from "./ZoomButtons.module.css";

const NEARER = 0.5;
const ASIDE = 0.25;

export function ZoomButtons({ lines, axis, units, zoom, onZoom }: Drawing) {
  const [from, to] = extentOfX(lines) ?? [0, 1];
  const all = { from, to };
  const view = zoom ?? all;
  // Steps have no values in between; on a time axis, one second is the minimum.
  const least = isTime(axis) ? 1 : units;
  const widen = (times: number) => onZoom(widened(view, all, times, least));
  const nearer = () => widen(NEARER);
  const further = () => widen(1 / NEARER);
  const aside = (share: number) => {
    if (zoom !== null) onZoom(moved(zoom, all, share));
  };
  useKeys({
    "+": nearer,
    "=": nearer,
    "-": further,
    ArrowLeft: () => aside(-ASIDE),
    ArrowRight: () => aside(ASIDE),
    "0": () => onZoom(null),
  });
  return (
    <fieldset className={classes.zoom} aria-label="Zoom">
      <Button size="sm" aria-label="Zoom in" title="Nearer (+)" onClick={nearer}>
        +
      </Button>
      <Button size="sm" aria-label="Zoom out" title="Further (−)" aria-disabled={zoom === null} onClick={further}>
        −
      </Button>
      <Button
        size="sm"
        aria-label="Earlier"
        title="Earlier (←)"
        aria-disabled={zoom === null}
        onClick={() => aside(-ASIDE)}
      >
        ←
      </Button>
      <Button size="sm" aria-label="Later" title="Later (→)" aria-disabled={zoom === null} onClick={() => aside(ASIDE)}>
        →
      </Button>
      <Button size="sm" title="All of it (0)" aria-disabled={zoom === null} onClick={() => onZoom(null)}>
        Reset zoom
      </Button>
    </fieldset>
  );
}
