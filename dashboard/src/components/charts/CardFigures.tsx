/**
 * Values of a card: last, lowest and highest; one is labelled best if the metric has a direction.
 */
import type { Figures } from "@/lib/curves";
import { bytes, number } from "@/lib/format";
import { betterWay } from "@/lib/metricNames";
import { measureOf } from "@/lib/ticks";
import classes from "./CardFigures.module.css";

export function figure(value: number, unit: string): string {
  return measureOf(unit) === "bytes" && Number.isFinite(value)
    ? `${bytes(value)}${unit === "bytes/s" ? "/s" : ""}`
    : number(value);
}

export function CardFigures({ metric, unit, figures }: { metric: string; unit: string; figures: Figures }) {
  const way = betterWay(metric);
  const low = way === "low" ? "best, lowest" : "lowest";
  const high = way === "high" ? "best, highest" : "highest";
  return (
    <dl className={classes.figures}>
      <Figure name="last" value={figures.last} step={figures.lastStep} unit={unit} isMain />
      <Figure name={low} value={figures.min} step={figures.minStep} unit={unit} isMain={way === "low"} />
      <Figure name={high} value={figures.max} step={figures.maxStep} unit={unit} isMain={way === "high"} />
      {figures.nonFinite > 0 ? (
        <div className={classes.odd} title="Marked in the chart: ◆ NaN, ▲ Infinity, ▼ −Infinity">
          <dt>not finite</dt>
          <dd>◆ {number(figures.nonFinite)}</dd>
        </div>
      ) : null}
    </dl>
  );
}

interface FigureProps {
  name: string;
  value: number;
  step: number;
  unit: string;
  isMain: boolean;
}

function Figure({ name, value, step, unit, isMain }: FigureProps) {
  return (
    <div data-main={isMain || undefined} title={step >= 0 ? `at step ${number(step)}` : undefined}>
      <dt>{name}</dt>
      <dd>{step >= 0 ? figure(value, unit) : "–"}</dd>
    </div>
  );
}
