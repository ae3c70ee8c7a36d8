/** Axis and zoom of the charts, and the jobs that they draw. */
import { useCallback, useMemo, useRef } from "react";
import type { JobOfCharts } from "@/api/series";
import { AXES, type Axis, axesOf, isTime, perStepOf } from "@/lib/axes";
import type { Described } from "@/lib/series";
import { onOtherAxis, type Zoom } from "@/lib/zoom";
import { useLook } from "./useLook";

type OnZoom = Readonly<Record<Axis, (zoom: Zoom | null) => void>>;

/** Axis and zoom: the user's choice, as far as the drawn jobs support it. */
export function useView(jobs: readonly JobOfCharts[]) {
  const { axis: wanted, zooms, change } = useLook();
  const perStep = useMemo(() => jobs.map(perStepOf), [jobs]);
  const axes = useMemo(() => axesOf(perStep), [perStep]);
  const axis = axes.includes(wanted) ? wanted : "step";
  const latest = useRef(zooms);
  latest.current = zooms;
  // The same functions always: cards that have nothing new are not rendered.
  const onZoom = useMemo(() => {
    const setter = (along: Axis) => (zoom: Zoom | null) => {
      const { [along]: _, ...others } = latest.current;
      change({ zooms: zoom === null ? others : { ...others, [along]: { from: zoom.from, to: zoom.to } } });
    };
    return Object.fromEntries(AXES.map((along) => [along, setter(along)])) as unknown as OnZoom;
  }, [change]);
  const onAxis = (next: Axis) => {
    const before = zooms[axis];
    const same = before === undefined ? null : onOtherAxis(before, axis, next, perStep);
    change({ axis: next, zooms: same === null ? {} : { [next]: same } });
  };
  const onReset = useCallback(() => change({ zooms: {} }), [change]);
  return { axis, axes, zooms, onZoom, onAxis, onReset };
}

/**
 * Keep the same list object while its contents are equal: pages create a new list on every poll,
 * which would redraw.
 */
export function useSameJobs(jobs: readonly JobOfCharts[]): readonly JobOfCharts[] {
  const kept = useRef(jobs);
  const says = (list: readonly JobOfCharts[]) =>
    JSON.stringify(
      list.map((job) => [
        job.id,
        job.name,
        job.state,
        job.started_at ?? null,
        job.followedAs ?? null,
        Object.entries(perStepOf(job)),
      ]),
    );
  if (kept.current !== jobs && says(kept.current) !== says(jobs)) kept.current = jobs;
  return kept.current;
}

/** What is measured by the clock, as machines are: along steps such curves would stand in one place. */
export function byAxis(all: readonly Described[], axis: Axis): { along: Axis; series: Described[] }[] {
  const isClocked = (series: Described) => series.axis === "time" && !isTime(axis);
  return [
    { along: axis, series: all.filter((each) => !isClocked(each)) },
    { along: "relative" as const, series: all.filter(isClocked) },
  ].filter(({ series }) => series.length > 0);
}
