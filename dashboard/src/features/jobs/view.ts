/**
 * What the list of jobs shows, as the address keeps it: reading it, writing it, and asking the service for it.
 *
 * An address may be written by hand, so that values that do not fit are left out, and the shell names them. Defaults
 * are left out too: one view has one address.
 */
import type { JobState, ListJobsData } from "@/api/generated";
import { boundedText, listed } from "@/lib/listed";
import { readProject } from "@/lib/project";

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
/** The service's own bounds for names of jobs and projects, for those of people and nodes, and for `key=value`. */
export const NAME_CHARS_MAX = 63;
export const OWNER_CHARS_MAX = 255;
export const LABEL_CHARS_MAX = 319;
/** The service's form of a cursor. */
const CURSOR = /^[0-9a-f-]{36}$/;

/** `owner` of a list of the jobs of all people: the service's pattern for any name. */
export const ALL = "*";
/** A pattern may have a star before and behind a name. */
const STARS = 2;

export interface JobsView {
  /** In the order of `STATES`; none shows all. */
  state?: JobState[];
  /** A part of the name, or a beginning or an end of the id. */
  search?: string;
  /** A name, or a pattern of the service: `*` stands for any text. */
  owner?: string;
  project?: string;
  /** Where an attempt at the job was placed. */
  node?: string;
  /** `key=value`. */
  label?: string;
  order?: "oldest";
  /** The page after the job of this id; none is the first page. */
  cursor?: string;
}

export function readJobsView(search: Record<string, unknown>): JobsView {
  const asked = listed(search.state);
  const state = STATES.filter((one) => asked.includes(one));
  const label = boundedText(search.label, LABEL_CHARS_MAX);
  return withoutGaps({
    state: state.length === 0 || state.length === STATES.length ? undefined : state,
    // An address of an earlier version names the whole name: it is a part of itself.
    search: boundedText(search.search, NAME_CHARS_MAX) ?? boundedText(search.name, NAME_CHARS_MAX),
    owner: boundedText(search.owner, OWNER_CHARS_MAX + STARS),
    ...readProject(search),
    node: boundedText(search.node, OWNER_CHARS_MAX),
    label: label !== undefined && isLabel(label) ? label : undefined,
    order: search.order === "oldest" ? "oldest" : undefined,
    cursor: CURSOR.test(String(search.cursor)) ? String(search.cursor) : undefined,
  });
}

/** `view` with `changes`, on its first page: the cursor of another list says nothing about this one. */
export function changed(view: JobsView, changes: Partial<JobsView>): JobsView {
  return readJobsView({ ...view, cursor: undefined, ...changes });
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

/** The pattern of names with `typed` in them. */
export function partOf(typed: string): string {
  return typed.includes("*") ? typed : `*${typed}*`;
}

/** What a field shows of a pattern that `partOf` made. */
export function typedOf(pattern: string | undefined): string | undefined {
  return pattern === ALL ? undefined : pattern?.replace(/^\*([^*]+)\*$/, "$1");
}

export function toggled(view: JobsView, state: JobState): JobsView {
  const before = view.state ?? [];
  return changed(view, {
    state: before.includes(state) ? before.filter((one) => one !== state) : [...before, state],
  });
}

export interface SetFilter {
  /** As its field is called. */
  name: string;
  value: string;
  /** The view without it. */
  without: JobsView;
}

/** What hides jobs, in the order of the fields; the order and the page hide none. */
export function filtersSet(view: JobsView): SetFilter[] {
  const values: [keyof JobsView, string, string | undefined][] = [
    ["state", "state", view.state?.join(" or ")],
    ["search", "name or id", view.search],
    ["owner", "owner", typedOf(view.owner)],
    ["project", "project", view.project],
    ["node", "node", view.node],
    ["label", "label", view.label],
  ];
  return values.flatMap(([key, name, value]) =>
    value === undefined ? [] : [{ name, value, without: changed(view, { [key]: undefined }) }],
  );
}

export function isFiltered(view: JobsView): boolean {
  return filtersSet(view).length > 0;
}

/** The service's name of an order by age. */
export function sortOf(order: JobsView["order"]): string {
  return order === "oldest" ? "created" : "-created";
}

export function asQuery({ order, owner, ...filters }: JobsView): NonNullable<ListJobsData["query"]> {
  return { ...filters, owner: owner === ALL ? undefined : owner, sort: sortOf(order), limit: PAGE_SIZE };
}

/** A key, `=`, and any value. */
export function isLabel(typed: string): boolean {
  return typed.indexOf("=") > 0;
}

function withoutGaps(view: JobsView): JobsView {
  return Object.fromEntries(Object.entries(view).filter(([, value]) => value !== undefined));
}
