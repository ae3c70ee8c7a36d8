/**
 * The list of jobs as the address keeps it: reading it, changing it, and the request to the service.
 *
 * An address may be written by hand: values that do not fit are left out, and the shell names them. Defaults are left
 * out too, so that one view has one address.
 */
import type { JobState, ListJobsData } from "@/api/generated";
import { asList, boundedText, listed } from "@/lib/listed";
import { readProject } from "@/lib/project";
import { FILTER_CHARS_MAX } from "./filter/tokens";

export const STATES: readonly JobState[] = [
  "queued",
  "starting",
  "running",
  "paused",
  "succeeded",
  "failed",
  "cancelled",
];
export const PAGE_SIZE = 50;
/** The service's own bounds: names of people and nodes, `key=value`, a column, columns, cursors. */
const OWNER_CHARS_MAX = 255;
const LABEL_CHARS_MAX = 319;
const COLUMN_CHARS_MAX = 220;
export const COLUMNS_MAX = 40;
const CURSOR = /^[\w-]{36,2000}$/;
/** Groups that are open at once: each is a request of its own. */
export const OPEN_MAX = 8;

/** `owner` of a list of the jobs of all people: the service's pattern for any name. */
export const ALL = "*";
/** A pattern may have a star before and behind a name. */
const STARS = 2;
/** `columns` of an address that overrides the own default by the usual columns. */
export const USUAL = "usual";
export const NEWEST = "-created";

export interface JobsView {
  /** Tokens of docs/lists.md. */
  filter?: string;
  /** In the order of `STATES`; none shows all. */
  state?: JobState[];
  /** A name, or a pattern of the service: `*` stands for any text. */
  owner?: string;
  project?: string;
  /** Where an attempt at the job was placed. */
  node?: string;
  /** `key=value`. */
  label?: string;
  /** A column of the service, with `-` before it for the largest first; none is the newest first. */
  sort?: string;
  /** None are the usual ones. */
  columns?: string | string[];
  /** A column by whose values the jobs are grouped. */
  group?: string;
  /** Values of the groups that are open. */
  open?: string | string[];
  /** Place of the page; none is the first page. */
  cursor?: string;
}

/** What an address says about the jobs that are listed, not about their columns. */
const CHOOSING = ["filter", "state", "owner", "project", "node", "label"] as const satisfies (keyof JobsView)[];

export function readJobsView(search: Record<string, unknown>): JobsView {
  const asked = listed(search.state);
  const state = STATES.filter((one) => asked.includes(one));
  const label = boundedText(search.label, LABEL_CHARS_MAX);
  const sort = boundedText(search.sort, COLUMN_CHARS_MAX);
  const group = boundedText(search.group, COLUMN_CHARS_MAX);
  const named = listed(search.columns).filter((name) => boundedText(name, COLUMN_CHARS_MAX) !== undefined);
  return withoutGaps({
    filter: boundedText(search.filter, FILTER_CHARS_MAX),
    state: state.length === 0 || state.length === STATES.length ? undefined : state,
    owner: boundedText(search.owner, OWNER_CHARS_MAX + STARS),
    ...readProject(search),
    node: boundedText(search.node, OWNER_CHARS_MAX),
    label: label !== undefined && label.indexOf("=") > 0 ? label : undefined,
    sort: sort === NEWEST ? undefined : sort,
    columns: asList(named.slice(0, COLUMNS_MAX)),
    group,
    open: group === undefined ? undefined : asList(listed(search.open).slice(0, OPEN_MAX)),
    cursor: CURSOR.test(String(search.cursor)) ? String(search.cursor) : undefined,
  });
}

/** `view` with `changes`, on its first page: the cursor of another list says nothing about this one. */
export function changed(view: JobsView, changes: Partial<JobsView>): JobsView {
  return readJobsView({ ...view, cursor: undefined, ...changes });
}

/** `view` with other columns or open groups: the same jobs, so that the page stays. */
export function seen(view: JobsView, changes: Pick<Partial<JobsView>, "columns" | "open">): JobsView {
  return readJobsView({ ...view, ...changes });
}

/**
 * `view` with the owner that it means. In a team, a list without any filter is of the own jobs, and the address says
 * whose jobs each other list has.
 *
 * @param me - The own name in a team; null for a person alone.
 */
export function settled(view: JobsView, me: string | null): JobsView {
  const { owner, ...others } = view;
  if (me === null) return owner === ALL ? others : view;
  if (owner !== undefined) return view;
  return { ...view, owner: isFiltered(view) || view.cursor !== undefined ? ALL : me };
}

export function toggled(view: JobsView, state: JobState): JobsView {
  const before = view.state ?? [];
  return changed(view, {
    state: before.includes(state) ? before.filter((one) => one !== state) : [...before, state],
  });
}

/** The view without any filter; order, columns and groups stay. */
export function unfiltered({ sort, columns, group }: JobsView): JobsView {
  return readJobsView({ owner: ALL, sort, columns, group });
}

export function isFiltered({ owner, ...view }: JobsView): boolean {
  return CHOOSING.some((key) => key !== "owner" && view[key] !== undefined) || (owner !== undefined && owner !== ALL);
}

/** The filters that are no tokens, each with the view without it: a link of another page sets them. */
export function partsSet(view: JobsView, me: string | null): { name: string; value: string; without: JobsView }[] {
  const { owner, node, label } = view;
  const values = { owner: owner === me || owner === ALL ? undefined : owner, node, label };
  return Object.entries(values).flatMap(([name, value]) =>
    value === undefined
      ? []
      : [{ name, value, without: changed(view, { [name]: name === "owner" && me !== null ? ALL : undefined }) }],
  );
}

/** The jobs that a view lists, in words: "owner:ada gpus>4, running or failed". */
export function filterWords({ filter, state, owner, project, node, label }: JobsView): string {
  const named = { owner: owner === ALL ? undefined : owner, project, node, label };
  const words = Object.entries(named).flatMap(([name, value]) => (value === undefined ? [] : [`${name} ${value}`]));
  return [filter ?? [], ...words, state?.join(" or ") ?? []].flat().join(", ");
}

/** Two views with the same key list the same jobs in the same order. */
export function placeOf({ columns: _, open: __, ...view }: JobsView): string {
  return JSON.stringify(Object.entries(view).sort());
}

/** The request for the jobs of a view. */
export function asQuery(view: JobsView, columns: readonly string[]): NonNullable<ListJobsData["query"]> {
  const { owner, sort, columns: _, open: __, ...filters } = view;
  return {
    ...filters,
    owner: owner === ALL ? undefined : owner,
    sort: sort ?? NEWEST,
    columns: [...columns],
    totals: true,
    limit: PAGE_SIZE,
  };
}

function withoutGaps(view: JobsView): JobsView {
  return Object.fromEntries(Object.entries(view).filter(([, value]) => value !== undefined));
}
