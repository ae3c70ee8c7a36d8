/** Reading a chart by keys: a place that the keyboard reaches, and its words in a live region. */
import { type KeyboardEvent, useMemo, useState } from "react";
import { isTime } from "@/lib/axes";
import { extentOfX, type Reading } from "@/lib/lines";
import { type Position, reached, readingAt, runsOf } from "@/lib/reading";
import { widened } from "@/lib/zoom";
import type { Drawing } from "./Plot";
import classes from "./Plot.module.css";
import { spoken } from "./words";

interface KeyReaderProps extends Drawing {
  from: number;
  to: number;
  /** The place that is read; null when it is left. */
  onRead: (reading: Reading | null) => void;
  onExpand: (() => void) | undefined;
}

export function KeyReader({ lines, axis, series, units, zoom, onZoom, from, to, onRead, onExpand }: KeyReaderProps) {
  const [at, setAt] = useState<Position | null>(null);
  const runs = useMemo(() => runsOf(lines, from, to, axis), [lines, from, to, axis]);
  const reading = at === null ? null : readingAt(runs, at);
  const leave = () => {
    setAt(null);
    onRead(null);
  };
  const widen = (times: number) => {
    const [first, last] = extentOfX(lines) ?? [0, 1];
    onZoom(widened(zoom ?? { from: first, to: last }, { from: first, to: last }, times, isTime(axis) ? 1 : units));
    leave();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const next = reached(event.key, event.shiftKey, at, runs);
    if (next !== null) {
      setAt(next);
      onRead(readingAt(runs, next));
    } else if (event.key === "+" || event.key === "=") widen(0.5);
    else if (event.key === "-") widen(2);
    else if (event.key === "0") onZoom(null);
    else if (event.key === "Enter" && onExpand !== undefined) onExpand();
    else if (event.key === "Escape" && at !== null) leave();
    else return;
    event.preventDefault();
    // The keys of the page mean something else.
    event.stopPropagation();
  };
  return (
    <>
      <div
        role="application"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it is what the keyboard reads the chart with
        tabIndex={0}
        className={classes.reader}
        aria-label={`Read ${series.name} by arrow keys`}
        onKeyDown={onKeyDown}
        onBlur={leave}
      />
      <p aria-live="polite" className={classes.spoken} data-testid="chart-reading">
        {reading === null ? "" : spoken(reading, axis, series, runs.length > 1)}
      </p>
    </>
  );
}
