/**
 * Values of a card: last, lowest and highest; one is labelled best if the metric has a direction.
 */
import type { Summary } from "@/api/summaries";
import type { Figures } from "@/lib/curves";
import { number } from "@/lib/format";
import { figure, type Metadata } from "@/lib/series";
import classes from "./CardFigures.module.css";

interface CardFiguresProps {
  series: Metadata;
  figures: Figures;
  /** Figures of the service, which knows the exact step of the best value. */
  summary: Summary | undefined;
}

export function CardFigures({ series, figures, summary }: CardFiguresProps) {
  const { direction } = series;
  const low = direction === "lower" ? "best, lowest" : "lowest";
  const high = direction === "higher" ? "best, highest" : "highest";
  const stepOf = (value: number, step: number) => (value === summary?.best ? (summary.best_step ?? step) : step);
  const { last, lastStep, min, minStep, max, maxStep } = figures;
  return (
    <dl className={classes.figures}>
      <Figure name="last" value={last} step={lastStep} series={series} isMain />
      <Figure name={low} value={min} step={stepOf(min, minStep)} series={series} isMain={direction === "lower"} />
      <Figure name={high} value={max} step={stepOf(max, maxStep)} series={series} isMain={direction === "higher"} />
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
  series: Metadata;
  isMain: boolean;
}

function Figure({ name, value, step, series, isMain }: FigureProps) {
  return (
    <div data-main={isMain || undefined} title={step >= 0 ? `at step ${number(step)}` : undefined}>
      <dt>{name}</dt>
      <dd>{step >= 0 ? figure(value, series) : "–"}</dd>
    </div>
  );
}
