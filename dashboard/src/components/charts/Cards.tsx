/** The cards that one request fills: asked for while any of them is on the screen, and once more for the zoomed steps. */
import { useCallback, useMemo, useState } from "react";
import { type Steps, useCurves } from "@/api/curves";
import { placesFor, type Summaries } from "@/api/series";
import { Failed } from "@/components/Failed";
import { perStepOf } from "@/lib/axes";
import { linesOf, stepsBetween } from "@/lib/lines";
import type { Described } from "@/lib/series";
import { stepsIn } from "@/lib/zoom";
import { Card, type CardContext } from "./Card";
import classes from "./Charts.module.css";

interface CardsProps extends CardContext {
  /** Requested metrics, independent of the search filter, so that typing sends no requests. */
  metrics: readonly string[];
  /** Shown series. */
  shown: readonly Described[];
  ids: readonly string[];
  live: ReadonlySet<string>;
  summaries: Summaries;
}

export function Cards({ metrics, shown, ids, live, summaries, ...context }: CardsProps) {
  const { zoom, jobs, axis } = context;
  const [seen, setSeen] = useState<ReadonlySet<string>>(new Set());
  const onSeen = useCallback((metric: string, isSeen: boolean) => {
    setSeen((before) => {
      if (before.has(metric) === isSeen) return before;
      const after = new Set(before);
      if (isSeen) after.add(metric);
      else after.delete(metric);
      return after;
    });
  }, []);
  const followedAs = (jobs.length === 1 ? jobs[0]?.followedAs : undefined) ?? null;
  const wanted = { jobs: ids, followedAs, live, names: metrics, places: placesFor(ids.length, context.isWide) };
  const all = useCurves({ ...wanted, steps: null, enabled: seen.size > 0 });

  const steps = useMemo((): Steps | null => {
    if (zoom === null || all.curves === null) return null;
    const curves = [...all.curves.values()].flatMap((series) => [...series.values()].flat());
    // Curves that arrived point by point have no finer data.
    if (curves.every((curve) => curve.count === curve.step.length)) return null;
    const exact = stepsIn(zoom, axis, jobs.map(perStepOf));
    if (exact !== null) return exact;
    const sources = jobs.map(({ id, name, started_at, ...paced }) => ({
      job: id,
      name,
      perStep: perStepOf(paced),
      slot: 0,
      startedAt: started_at ? Date.parse(started_at) / 1_000 : null,
      series: [...(all.curves?.get(id)?.values() ?? [])],
    }));
    const lines = sources.flatMap(({ series, ...job }) =>
      series.flatMap((curves) => linesOf([{ ...job, curves }], axis, 0)),
    );
    return stepsBetween(lines, zoom.from, zoom.to);
  }, [zoom, all.curves, axis, jobs]);
  const zoomed = useCurves({ ...wanted, steps, enabled: seen.size > 0 && steps !== null });

  const { curves: fine, steps: fineSteps } = zoomed;
  const shownZoom = useMemo(
    () => (steps === null ? null : { curves: fine, steps: fineSteps }),
    [steps, fine, fineSteps],
  );

  if (all.error !== null && all.curves === null)
    return (
      <div className={classes.wide}>
        <Failed error={all.error} retry={all.retry} />
      </div>
    );
  const alone = jobs.length === 1 && jobs[0] ? summaries.byJob.get(jobs[0].id) : undefined;
  const cards = shown.map((series) => (
    <Card
      key={series.name}
      series={series}
      summary={context.isAlone ? alone?.get(series.name) : undefined}
      all={all.curves}
      zoomed={shownZoom}
      onSeen={onSeen}
      {...context}
    />
  ));
  return <>{cards}</>;
}
