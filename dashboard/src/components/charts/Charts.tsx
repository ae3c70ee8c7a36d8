/**
 * All metrics of one job or of several as cards, in the groups of the service: the charts of a job's page and of
 * Compare. Cards are drawn, and their points asked for, only while they are on the screen.
 */
import { type ReactNode, useId, useMemo, useState } from "react";
import { createPortal } from "react-dom";
import { runningKey } from "@/api/curves";
import { jobKey } from "@/api/live";
import { type JobOfCharts, requestsFor, type Summaries, useLive, useSummaries } from "@/api/series";
import { Button } from "@/components/Button";
import { Empty } from "@/components/Empty";
import { Failed } from "@/components/Failed";
import { Stale } from "@/components/Stale";
import type { Group } from "@/lib/groups";
import type { Look } from "@/lib/look";
import type { Mark } from "@/lib/marks";
import { slotsOf } from "@/lib/palette";
import { grouped, matches, SYSTEM } from "@/lib/series";
import { Cards } from "./Cards";
import classes from "./Charts.module.css";
import "./palette.css";
import { NoMetrics } from "./NoMetrics";
import { changeSettings, toggled, useChartSettings } from "./settings";
import { Toolbar } from "./Toolbar";
import { LookProvider, useLookState } from "./useLook";
import { byAxis, useSameJobs, useView } from "./useView";

export interface ChartsProps {
  jobs: readonly JobOfCharts[];
  /** Colour index of each job; by default their order. */
  slots?: ReadonlyMap<string, number>;
  /** Jobs that are not drawn. */
  hidden?: ReadonlySet<string>;
  /** Series of the jobs, where the page has asked for them. */
  summaries?: Summaries;
  /** A metric whose card is before all others, and wide. */
  first?: string;
  /** Jobs that are drawn as the mean of their group. */
  groups?: readonly Group[];
  /** The job, or the group, that the user points at. */
  hot?: string | null;
  onHot?: (job: string | null) => void;
  /** Events of the job beside its points, for a single job. */
  marks?: readonly Mark[];
  /** View settings from the page's address, and their owner. */
  address?: Look;
  onLook?: (look: Look) => void;
  /** True on the page that the tab opened first. */
  isFirst?: boolean;
  /** The element that holds the controls, null until it is there; without one they are above the charts. */
  controls?: HTMLElement | null;
  /** What follows the charts, as soon as these have their places. */
  below?: ReactNode;
}

const NONE: ReadonlySet<string> = new Set();
const NO_MARKS: readonly Mark[] = [];
const NO_JOBS: readonly JobOfCharts[] = [];
const NO_GROUPS: readonly Group[] = [];
const PINNED = "pinned";
const NO_ADDRESS: Look = {};
const KEPT_NOWHERE = () => {};
/** Cards of a group that are shown at first. */
const CARDS_SHOWN = 12;

export function Charts({ address = NO_ADDRESS, onLook = KEPT_NOWHERE, isFirst = false, ...charts }: ChartsProps) {
  return (
    <LookProvider value={useLookState(address, onLook, isFirst)}>
      <GroupedCharts {...charts} />
    </LookProvider>
  );
}

function GroupedCharts({
  jobs: given,
  slots: givenSlots,
  hidden = NONE,
  marks = NO_MARKS,
  summaries: known,
  first,
  groups: drawnGroups = NO_GROUPS,
  hot = null,
  onHot,
  ...places
}: ChartsProps) {
  const { controls, below } = places;
  const jobs = useSameJobs(given);
  const live = useLive(jobs);
  const own = useSummaries(known === undefined ? jobs : NO_JOBS, live);
  const summaries = known ?? own;
  const { pinned, folded, marks: withMarks } = useChartSettings();
  const [search, setSearch] = useState("");
  const syncKey = useId();
  const ids = useMemo(() => jobs.map(({ id }) => id), [jobs]);
  const slots = useMemo(() => givenSlots ?? slotsOf(ids, new Map()), [givenSlots, ids]);
  const shownJobs = useMemo(() => jobs.filter(({ id }) => !hidden.has(id)), [jobs, hidden]);
  const { axis, axes, zooms, onZoom, onAxis, onReset } = useView(shownJobs.length > 0 ? shownJobs : jobs);
  const [whole, setWhole] = useState<ReadonlySet<string>>(new Set());
  const isAlone = jobs.length === 1;
  const groups = useMemo(() => {
    const others = summaries.series.filter(({ name }) => name !== first);
    const chosen = others.filter(({ name }) => pinned.includes(name));
    const rest = grouped(others.filter(({ name }) => !pinned.includes(name)));
    return chosen.length > 0 ? [{ name: PINNED, series: chosen }, ...rest] : rest;
  }, [summaries.series, pinned, first]);
  const leading = useMemo(() => summaries.series.filter(({ name }) => name === first), [summaries.series, first]);

  if (summaries.series.length === 0) {
    if (summaries.error !== null) return <Failed error={summaries.error} retry={summaries.retry} />;
    if (summaries.isPending) return <div className={classes.loading} />;
    return (
      <div className={classes.charts}>
        <div className={classes.empty}>
          <NoMetrics isLive={live.size > 0} />
        </div>
        {below}
      </div>
    );
  }
  // Measurements of a machine are not the job's own series.
  const hasOwn = summaries.series.some(({ group }) => group !== SYSTEM);
  const running = ids.filter((id) => live.has(id));
  const followed = jobs.flatMap(({ followedAs }) => (followedAs === undefined ? [] : [followedAs]));
  const context = {
    jobs: shownJobs,
    slots,
    isAlone,
    marks: isAlone && withMarks ? marks : NO_MARKS,
    ids,
    live,
    summaries,
    groups: drawnGroups,
    hot,
    onHot,
  };
  const shownFirst = leading.filter(({ name }) => matches(name, search));
  const found = groups
    .map(({ name, series }) => ({ name, series, shown: series.filter((each) => matches(each.name, search)) }))
    .filter(({ shown }) => shown.length > 0);
  const toolbar = (
    <Toolbar
      search={search}
      onSearch={setSearch}
      axis={axis}
      axes={axes}
      onAxis={onAxis}
      marks={isAlone ? marks : NO_MARKS}
      isZoomed={Object.keys(zooms).length > 0}
      onReset={onReset}
    />
  );
  return (
    <div className={classes.charts}>
      {hasOwn ? null : (
        <div className={classes.empty}>
          <NoMetrics isLive={live.size > 0} />
        </div>
      )}
      {controls === undefined ? (
        <div className={classes.empty}>{toolbar}</div>
      ) : (
        controls && createPortal(toolbar, controls)
      )}
      {byAxis(shownFirst, axis).map(({ along, series }) => (
        <div key={along} className={classes.first}>
          <h2 className={classes.unseen}>Chosen metric</h2>
          <Cards
            metrics={series.map(({ name }) => name)}
            shown={series}
            axis={along}
            zoom={zooms[along] ?? null}
            onZoom={onZoom[along]}
            syncKey={`${syncKey}-${along}`}
            isWide
            {...context}
          />
        </div>
      ))}
      {found.length === 0 && shownFirst.length === 0 ? (
        <Empty title={`No metric has “${search}” in its name`}>
          <Button size="sm" onClick={() => setSearch("")}>
            Show all charts
          </Button>
        </Empty>
      ) : null}
      {found.map(({ name, series, shown }) => {
        // Search results are shown even if their group is folded.
        const isOpen = !folded.includes(name) || search !== "" || !hasOwn;
        const isWhole = whole.has(name) || search !== "";
        const parts = byAxis(series, axis).map(({ along, series: those }) => ({
          along,
          requests: requestsFor(
            those.map((each) => each.name),
            jobs.length,
          ),
        }));
        const cards = isWhole ? shown : shown.slice(0, CARDS_SHOWN);
        return (
          <section key={name} className={classes.group}>
            <div className={classes.head}>
              <h2>
                <Button
                  variant="unstyled"
                  aria-expanded={isOpen}
                  onClick={() => changeSettings({ folded: toggled(folded, name) })}
                >
                  <span aria-hidden>{isOpen ? "▾" : "▸"}</span> {name}{" "}
                  <span className={classes.count}>{shown.length}</span>
                </Button>
              </h2>
              <Stale
                of={[
                  ...followed.map(jobKey),
                  ...parts.flatMap(({ requests }) => requests.map((names) => runningKey(running, names))),
                ]}
              />
            </div>
            {isOpen ? (
              <div className={classes.grid}>
                {parts.flatMap(({ along, requests }) =>
                  requests.map((part) => (
                    <Cards
                      key={part[0]}
                      metrics={part}
                      shown={cards.filter((each) => part.includes(each.name))}
                      axis={along}
                      zoom={zooms[along] ?? null}
                      onZoom={onZoom[along]}
                      syncKey={`${syncKey}-${along}`}
                      {...context}
                    />
                  )),
                )}
              </div>
            ) : null}
            {isOpen && cards.length < shown.length ? (
              <Button size="sm" onClick={() => setWhole((before) => new Set(before).add(name))}>
                Show all {shown.length} charts of {name}
              </Button>
            ) : null}
          </section>
        );
      })}
      {below}
    </div>
  );
}
