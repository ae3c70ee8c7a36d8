/**
 * All metrics of one job or of several as cards, grouped by the prefix of their name: the charts of a job's page and of
 * Compare. Cards are drawn, and their points asked for, only while they are on the screen.
 */
import { useCallback, useId, useMemo, useRef, useState } from "react";
import { type JobOfCharts, requestsFor, useLive, useSummaries } from "@/api/series";
import { Empty } from "@/components/Empty";
import { Failed } from "@/components/Failed";
import { type Axis, axesOf, perStepOf } from "@/lib/axes";
import type { Mark } from "@/lib/marks";
import { byInterest, grouped, matches } from "@/lib/metricNames";
import { slotsOf } from "@/lib/palette";
import { onOtherAxis, type Zoom } from "@/lib/zoom";
import { Cards } from "./Cards";
import classes from "./Charts.module.css";
import "./palette.css";
import { changeSettings, toggled, useChartSettings } from "./settings";
import { Toolbar } from "./Toolbar";

export interface ChartsProps {
  jobs: readonly JobOfCharts[];
  /** Which colour each job has; by their order if not given. */
  slots?: ReadonlyMap<string, number>;
  /** Jobs that are not drawn. */
  hidden?: ReadonlySet<string>;
  /** What happened to the job beside its points, where there is one job only. */
  marks?: readonly Mark[];
}

const NONE: ReadonlySet<string> = new Set();
const NO_MARKS: readonly Mark[] = [];
const PINNED = "pinned";

export function Charts({ jobs: given, slots: givenSlots, hidden = NONE, marks = NO_MARKS }: ChartsProps) {
  const jobs = useSame(given);
  const live = useLive(jobs);
  const summaries = useSummaries(jobs, live);
  const { pinned, folded, marks: withMarks } = useChartSettings();
  const [search, setSearch] = useState("");
  const syncKey = useId();
  const ids = useMemo(() => jobs.map(({ id }) => id), [jobs]);
  const slots = useMemo(() => givenSlots ?? slotsOf(ids, new Map()), [givenSlots, ids]);
  const shownJobs = useMemo(() => jobs.filter(({ id }) => !hidden.has(id)), [jobs, hidden]);
  const { axis, axes, zoom, onZoom, onAxis } = useView(shownJobs.length > 0 ? shownJobs : jobs);
  const isAlone = jobs.length === 1;
  const groups = useMemo(() => {
    const first = summaries.names.filter((name) => pinned.includes(name)).sort(byInterest);
    const rest = grouped(summaries.names.filter((name) => !pinned.includes(name)));
    return first.length > 0 ? [{ name: PINNED, metrics: first }, ...rest] : rest;
  }, [summaries.names, pinned]);

  if (summaries.names.length === 0) {
    if (summaries.error !== null) return <Failed error={summaries.error} retry={summaries.retry} />;
    if (summaries.isPending) return <div className={classes.loading} />;
    return <Nothing isLive={live.size > 0} />;
  }
  const context = {
    jobs: shownJobs,
    slots,
    isAlone,
    marks: isAlone && withMarks ? marks : NO_MARKS,
    axis,
    zoom,
    onZoom,
    syncKey,
    ids,
    live,
    summaries,
  };
  const found = groups
    .map(({ name, metrics }) => ({ name, metrics, shown: metrics.filter((metric) => matches(metric, search)) }))
    .filter(({ shown }) => shown.length > 0);
  return (
    <div className={classes.charts}>
      <Toolbar
        search={search}
        onSearch={setSearch}
        axis={axis}
        axes={axes}
        onAxis={onAxis}
        marks={isAlone ? marks : NO_MARKS}
        isZoomed={zoom !== null}
        onReset={() => onZoom(null)}
      />
      {found.length === 0 ? (
        <Empty title={`No metric has “${search}” in its name`}>
          <button type="button" className={classes.clear} onClick={() => setSearch("")}>
            Show all charts
          </button>
        </Empty>
      ) : null}
      {found.map(({ name, metrics, shown }) => {
        // What is searched for is shown, also where its group is folded.
        const isOpen = !folded.includes(name) || search !== "";
        return (
          <section key={name} className={classes.group}>
            <h2>
              <button
                type="button"
                aria-expanded={isOpen}
                onClick={() => changeSettings({ folded: toggled(folded, name) })}
              >
                <span aria-hidden>{isOpen ? "▾" : "▸"}</span> {name}{" "}
                <span className={classes.count}>{shown.length}</span>
              </button>
            </h2>
            {isOpen ? (
              <div className={classes.grid}>
                {requestsFor(metrics, jobs.length).map((part) => (
                  <Cards
                    key={part[0]}
                    metrics={part}
                    shown={part.filter((metric) => shown.includes(metric))}
                    {...context}
                  />
                ))}
              </div>
            ) : null}
          </section>
        );
      })}
    </div>
  );
}

function Nothing({ isLive }: { isLive: boolean }) {
  if (!isLive)
    return (
      <Empty title="No points are stored">
        <p>
          Nothing was reported before the end, or the job kept its points for some days only: then its timeline says so.
        </p>
      </Empty>
    );
  return (
    <Empty title="No points yet" command={`echo '{"step": 0, "loss": 1.5}' >> "$LOCKSTEP_METRICS"`}>
      <p>Charts appear with the first point. A training job reports by itself; a script appends lines such as this:</p>
    </Empty>
  );
}

/** Along which axis, and which part of it: what a person chose, as far as the drawn jobs have it. */
function useView(jobs: readonly JobOfCharts[]) {
  const { axis: wanted } = useChartSettings();
  const [held, setHeld] = useState<(Zoom & { axis: Axis }) | null>(null);
  const perStep = useMemo(() => jobs.map(perStepOf), [jobs]);
  const axes = useMemo(() => axesOf(perStep), [perStep]);
  const axis = axes.includes(wanted) ? wanted : "step";
  const onZoom = useCallback((zoom: Zoom | null) => setHeld(zoom === null ? null : { ...zoom, axis }), [axis]);
  const onAxis = (next: Axis) => {
    const same = held === null ? null : onOtherAxis(held, held.axis, next, perStep);
    setHeld(same === null ? null : { ...same, axis: next });
    changeSettings({ axis: next });
  };
  // What was chosen along another axis is another part, or none.
  return { axis, axes, zoom: held?.axis === axis ? held : null, onZoom, onAxis };
}

/** The same list as long as it says the same: pages make a new one on every poll, and lines would be drawn for nothing. */
function useSame(jobs: readonly JobOfCharts[]): readonly JobOfCharts[] {
  const kept = useRef(jobs);
  const says = (list: readonly JobOfCharts[]) =>
    JSON.stringify(
      list.map((job) => [job.id, job.name, job.state, job.started_at ?? null, Object.entries(perStepOf(job))]),
    );
  if (kept.current !== jobs && says(kept.current) !== says(jobs)) kept.current = jobs;
  return kept.current;
}
