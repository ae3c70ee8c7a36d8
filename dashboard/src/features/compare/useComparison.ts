/** The comparison of the address: its jobs, rows, colours and groups; what is chosen here goes to the address first. */
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo, useRef, useState } from "react";
import type { JobView } from "@/api/generated";
import { type Summaries, useLive, useSummaries } from "@/api/series";
import type { Group } from "@/lib/groups";
import { readLook } from "@/lib/look";
import { BASELINE, slotsOf } from "@/lib/palette";
import type { Described } from "@/lib/series";
import { plainSlots, type Ramp, rampOf } from "./colouring";
import { groupsOf, mainMetric, type Run, type RunGroup, runsOf, sorted, sortedGroups, usualSort } from "./runs";
import { metricOf, type Scatter, scatterOf } from "./scatter";
import { type Column, columnsOf, endOf, settingsOf } from "./settings";
import { type Jobs, useJobs } from "./useJobs";
import { type Sort, type View, viewIn, written } from "./view";

export interface Comparison extends Pick<Jobs, "jobs" | "isPending" | "missing" | "error" | "retry"> {
  view: View;
  change: (part: Partial<View>) => void;
  runs: readonly Run[];
  /** In place of the runs, where they are grouped. */
  groups: readonly RunGroup[] | null;
  columns: readonly Column[];
  metric: Described | undefined;
  sort: Sort | null;
  summaries: Summaries;
  /** Ids. */
  baseline: string | undefined;
  hidden: ReadonlySet<string>;
  slots: ReadonlyMap<string, number>;
  ramp: Ramp | null;
  scatter: Scatter | null;
  drawnGroups: readonly Group[];
  /** As the address names a job. */
  referenceOf: (id: string) => string;
}

const NO_GROUPS: readonly Group[] = [];

export function useComparison(): Comparison {
  const search = useSearch({ from: "/compare" });
  const navigate = useNavigate();
  const view = useMemo(() => viewIn({ ...search }), [search]);
  const { jobs, idOf, ...asked } = useJobs(view.jobs);
  const live = useLive(jobs);
  const [main, setMain] = useState<string>();
  const summaries = useSummaries(jobs, live, useNames(view.metric ?? main, metricOf(view.scatter)));
  const metric =
    summaries.series.find(({ name }) => name === view.metric) ??
    summaries.series.find(({ name }) => name === mainMetric(summaries.series));
  // Which series there are says the first answer; figures are asked for with the second.
  if (view.metric === undefined && metric !== undefined && metric.name !== main) setMain(metric.name);
  const idsOf = (references: readonly string[]) => references.flatMap((reference) => idOf.get(reference) ?? []);
  const baseline = view.baseline === undefined ? undefined : idOf.get(view.baseline);
  const hidden = useSame(new Set(idsOf(view.hidden)), idsOf(view.hidden).join());
  // What jobs were submitted with changes only with their labels.
  const fixed = jobs.map(({ id, labels }) => `${id} ${JSON.stringify(labels)}`).join();
  const settings = useSame(new Map(jobs.map((job) => [job.id, settingsOf(job)])), fixed);
  const columns = useMemo(() => columnsOf([...settings.values()]), [settings]);
  const runs = runsOf(jobs, settings, metric, summaries.byJob, baseline);
  const sort = view.sort ?? usualSort(metric?.direction);
  const groups = useGroups(runs, view.group, hidden, baseline);
  const { slots, ramp } = useSlots(jobs, settings, groups, view, baseline);
  const drawnGroups = useSame(
    groups?.map(({ key, value, runs: own }, slot) => ({
      key,
      name: `${endOf(view.group ?? "")} ${value}`,
      slot,
      jobs: own.map(({ job }) => job.id),
    })) ?? NO_GROUPS,
    JSON.stringify(groups?.map(({ key, runs: own }) => [key, own.map(({ job }) => job.id)]) ?? null) + view.group,
  );

  const latest = useRef(view);
  latest.current = view;
  const change = useCallback(
    (part: Partial<View>) =>
      void navigate({
        to: "/compare",
        search: (before) => {
          const next = viewIn({ ...written({ ...latest.current, ...part }) });
          return { ...written(next), ...readLook({ ...before }) };
        },
        replace: true,
        resetScroll: false,
      }),
    [navigate],
  );
  return {
    ...asked,
    jobs,
    view,
    change,
    runs: sorted(runs, sort),
    groups:
      groups &&
      sortedGroups(
        groups.map((group) => ({ ...group, runs: sorted(group.runs, sort) })),
        sort,
      ),
    columns,
    metric,
    sort,
    summaries,
    baseline,
    hidden,
    slots,
    ramp,
    scatter:
      view.scatter === undefined || metric === undefined
        ? null
        : scatterOf(
            runs.filter(({ job }) => !hidden.has(job.id)),
            view.scatter,
            metric,
            summaries.series,
            summaries.byJob,
          ),
    drawnGroups,
    referenceOf: (id) => view.jobs.find((reference) => idOf.get(reference) === id) ?? id,
  };
}

function useNames(metric: string | undefined, other: string | undefined): readonly string[] {
  return useMemo(() => [...new Set([metric ?? [], other ?? []].flat())], [metric, other]);
}

/** In the order of their values, in which they have their colours. */
function useGroups(
  runs: readonly Run[],
  by: string | undefined,
  hidden: ReadonlySet<string>,
  baseline: string | undefined,
): RunGroup[] | null {
  if (by === undefined || !runs.some(({ settings }) => settings.has(by))) return null;
  return groupsOf(runs, by, hidden, runs.find(({ job }) => job.id === baseline) ?? null);
}

function useSlots(
  jobs: readonly JobView[],
  settings: ReadonlyMap<string, ReadonlyMap<string, string>>,
  groups: readonly RunGroup[] | null,
  { jobs: references, colour }: View,
  baseline: string | undefined,
): { slots: ReadonlyMap<string, number>; ramp: Ramp | null } {
  const before = useRef<ReadonlyMap<string, number>>(new Map());
  const ids = jobs.map(({ id }) => id);
  const ramp = useMemo(() => (colour === undefined ? null : rampOf(colour, settings)), [colour, settings]);
  // In the order of the address, because answers come in any order: after a reload each job has its colour again.
  before.current = slotsOf(ids, before.current);
  const slots = new Map(
    groups?.flatMap(({ runs }, slot) => runs.map(({ job }) => [job.id, slot] as const)) ??
      ramp?.slots ??
      plainSlots(ids, before.current),
  );
  if (baseline !== undefined && slots.has(baseline)) slots.set(baseline, BASELINE);
  return { slots: useSame(slots, JSON.stringify([...slots]) + references.length), ramp: groups === null ? ramp : null };
}

/** The same object as long as its key is the same: a new one on each poll would draw all charts again. */
function useSame<T>(value: T, key: string): T {
  const kept = useRef({ value, key });
  if (kept.current.key !== key) kept.current = { value, key };
  return kept.current.value;
}
