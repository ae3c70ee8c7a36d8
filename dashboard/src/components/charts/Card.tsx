/** One metric of all jobs: its name, its figures and its chart. */
import { useMutation } from "@tanstack/react-query";
import { memo, useEffect, useId, useMemo, useRef, useState } from "react";
import type { Curves, CurvesOfJobs } from "@/api/curves";
import type { JobOfCharts } from "@/api/series";
import type { Summary } from "@/api/summaries";
import { Button } from "@/components/Button";
import { Failed } from "@/components/Failed";
import { type Axis, perStepOf, unitsPerStep } from "@/lib/axes";
import { figuresOf, refined } from "@/lib/curves";
import { number } from "@/lib/format";
import { type Group, linesOfGroups } from "@/lib/groups";
import { linesOf } from "@/lib/lines";
import type { Mark } from "@/lib/marks";
import { outliersIn } from "@/lib/outliers";
import { counted } from "@/lib/resources";
import type { Described } from "@/lib/series";
import type { Zoom } from "@/lib/zoom";
import classes from "./Card.module.css";
import { CardActions } from "./CardActions";
import { CardFigures } from "./CardFigures";
import { useChartColours } from "./colours";
import { Expanded } from "./Expanded";
import { Plot } from "./Plot";
import { saveDrawn, saveEveryPoint, savePicture } from "./saving";
import { useLook } from "./useLook";
import { useOnScreen } from "./useOnScreen";
import { described } from "./words";

const HEIGHT = 228;
const WIDE_HEIGHT = 300;
const BUCKETS =
  "Each place of the line is the last point of a bucket; the band is from its lowest to its highest. Smoothing runs over " +
  "the buckets. Zoom in to see every point.";

export interface CardContext {
  /** Shown jobs, without hidden ones. */
  jobs: readonly JobOfCharts[];
  slots: ReadonlyMap<string, number>;
  isAlone: boolean;
  marks: readonly Mark[];
  axis: Axis;
  zoom: Zoom | null;
  onZoom: (zoom: Zoom | null) => void;
  syncKey: string;
  groups: readonly Group[];
  hot: string | null;
  onHot: ((job: string | null) => void) | undefined;
  /** Of the whole width of the charts, and higher. */
  isWide?: boolean;
}

interface CardProps extends CardContext {
  series: Described;
  /** Figures of the service, for a single job. */
  summary: Summary | undefined;
  all: CurvesOfJobs | null;
  zoomed: Pick<Curves, "curves" | "steps"> | null;
  onSeen: (metric: string, isSeen: boolean) => void;
}

/** Remembered, because a page of sixty cards is rendered on every poll of anything, and most cards have nothing new. */
export const Card = memo(function Card({ series, summary, all, zoomed, onSeen, ...context }: CardProps) {
  const { jobs, slots, isAlone, marks, axis, zoom, onZoom, syncKey, groups, hot, onHot, isWide = false } = context;
  const height = isWide ? WIDE_HEIGHT : HEIGHT;
  const { name: metric, unit } = series;
  const { smoothing, logarithmic, clipped, ranges, change, toggle } = useLook();
  const isLog = logarithmic.includes(metric);
  const element = useRef<HTMLElement>(null);
  const isSeen = useOnScreen(element);
  // The menus of sixty cards take longer than all else: a card that was never on the screen has none.
  const wasSeen = useRef(false);
  wasSeen.current ||= isSeen;
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = useChartColours();
  const [isExpanded, setIsExpanded] = useState(false);
  const heading = useId();
  const everyPoint = useMutation({ mutationFn: () => saveEveryPoint(metric, jobs) });

  useEffect(() => {
    onSeen(metric, isSeen);
    return () => onSeen(metric, false);
  }, [metric, isSeen, onSeen]);

  const sources = useMemo(
    () =>
      jobs.map(({ id, name, started_at, ...paced }) => ({
        job: id,
        name,
        perStep: perStepOf(paced),
        slot: slots.get(id) ?? 0,
        startedAt: started_at ? Date.parse(started_at) / 1_000 : null,
        curves: (all?.get(id)?.get(metric) ?? []).map((curve) => {
          const steps = zoomed?.steps ?? null;
          if (steps === null) return curve;
          const fine = zoomed?.curves
            ?.get(id)
            ?.get(metric)
            ?.find(({ attempt }) => attempt === curve.attempt);
          return refined(curve, fine, steps.from, steps.to);
        }),
      })),
    [jobs, slots, all, zoomed?.curves, zoomed?.steps, metric],
  );
  const outliers = useMemo(
    () =>
      outliersIn(
        sources.flatMap(({ curves }) => curves),
        isLog,
      ),
    [sources, isLog],
  );
  const isClipped = clipped.includes(metric);
  const clip = isClipped ? (outliers?.range ?? null) : null;
  const range = ranges[metric] ?? null;
  const lines = useMemo(() => {
    const all = linesOf(sources, axis, smoothing, clip);
    return groups.length === 0 ? all : linesOfGroups(all, groups);
  }, [sources, axis, smoothing, clip, groups]);
  const figures = useMemo(
    () => (isAlone && jobs[0] ? figuresOf(all?.get(jobs[0].id)?.get(metric) ?? []) : null),
    [isAlone, jobs, all, metric],
  );
  const perPlace = useMemo(() => {
    const curves = jobs.flatMap(({ id }) => all?.get(id)?.get(metric) ?? []);
    return Math.max(1, ...curves.map((curve) => curve.perPlace));
  }, [jobs, all, metric]);
  const label = useMemo(() => {
    const told = groups.length === 0 ? sources : lines.map(({ name, curve }) => ({ name, curves: [curve] }));
    return described(series, axis, told, marks);
  }, [series, axis, sources, lines, groups, marks]);
  const units = (sources[0] && unitsPerStep(axis, sources[0].perStep)) ?? 1;
  const drawing = { lines, marks, units, axis, series, isLog, clip, range, zoom, onZoom, label, syncKey, hot, onHot };

  return (
    <article className={classes.card} ref={element} aria-labelledby={heading} data-metric={metric}>
      <header className={classes.header}>
        <h3 id={heading} className={classes.name} title={metric}>
          {metric} {unit ? <span className={classes.unit}>{unit}</span> : null}
          {perPlace > 1 ? (
            <span className={classes.unit} title={BUCKETS}>
              {unit ? " · " : " "}buckets of {number(Math.ceil(perPlace))}
            </span>
          ) : null}
          {outliers === null || range !== null ? null : (
            <Button
              variant="outline"
              size="xs"
              className={classes.note}
              aria-pressed={isClipped}
              title={isClipped ? "Show all values" : "Show the other values in full height"}
              onClick={() => toggle("clipped", metric)}
            >
              {isClipped
                ? `${counted(outliers.count, "outlier")} clipped`
                : `Clip ${counted(outliers.count, "outlier")}`}
            </Button>
          )}
          {range === null ? null : (
            <Button
              variant="outline"
              size="xs"
              className={classes.note}
              title="Show all values"
              onClick={() => change({ ranges: withoutKey(ranges, metric) })}
            >
              y {number(range.from)} to {number(range.to)} ×
            </Button>
          )}
        </h3>
        {wasSeen.current ? (
          <CardActions
            metric={metric}
            onExpand={() => setIsExpanded(true)}
            onPicture={() => canvas.current && savePicture(metric, lines, marks, canvas.current, colours)}
            onDrawn={() => saveDrawn(metric, lines, axis)}
            onEveryPoint={() => everyPoint.mutate()}
          />
        ) : (
          <div className={classes.place} />
        )}
      </header>
      {isAlone ? (
        <div className={classes.figures}>
          {figures ? <CardFigures series={series} figures={figures} summary={summary} /> : null}
        </div>
      ) : null}
      {isSeen && all !== null ? (
        <Plot {...drawing} height={height} canvas={canvas} onExpand={() => setIsExpanded(true)} />
      ) : (
        <div className={classes.waiting} style={{ height }} />
      )}
      {everyPoint.error ? <Failed error={everyPoint.error} retry={() => everyPoint.mutate()} /> : null}
      {isExpanded ? (
        <Expanded
          drawing={drawing}
          figures={figures}
          summary={summary}
          isAlone={isAlone}
          onClose={() => setIsExpanded(false)}
          onEveryPoint={() => everyPoint.mutate()}
        />
      ) : null}
    </article>
  );
});

function withoutKey(ranges: Readonly<Record<string, Zoom>>, metric: string): Record<string, Zoom> {
  const { [metric]: _, ...others } = ranges;
  return others;
}
