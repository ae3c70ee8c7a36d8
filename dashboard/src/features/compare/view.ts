/** What is compared, and how it is looked at, as the address keeps it: `?jobs=a,b&hidden=b&sort=-step&baseline=a`. */
import { COMPARED_MAX } from "@/lib/compared";
import { boundedText, listed } from "@/lib/listed";
import { type Look, readLook } from "@/lib/look";

export interface Comparison extends Look {
  /** Ids, with commas between them; a list is taken too. */
  jobs?: string | string[];
  hidden?: string;
  metric?: string;
  /** A column of the table, with `-` before it for the largest first. */
  sort?: string;
  baseline?: string;
  /** A setting, or `label:KEY`, whose values make the groups. */
  group?: string;
  /** A setting whose values the colours show. */
  colour?: string;
  /** A setting, or `metric:NAME`, against which the figures are scattered. */
  scatter?: string;
}

/** The same without the look of the charts. */
export interface View {
  /** As the address names them: ids, or names. */
  jobs: readonly string[];
  hidden: readonly string[];
  metric: string | undefined;
  sort: Sort | undefined;
  baseline: string | undefined;
  group: string | undefined;
  colour: string | undefined;
  scatter: string | undefined;
}

/** By `name`, `state`, `figure`, `difference`, `step`, or a setting as `setting:PATH`. */
export interface Sort {
  by: string;
  isDescending: boolean;
}

const OF_SETTING = "setting:";
const COLUMNS: readonly string[] = ["name", "state", "figure", "difference", "step"];
const CHARS_MAX = 300;

export function readComparison(search: Record<string, unknown>): Comparison {
  return { ...written(viewIn(search)), ...readLook(search) };
}

export function viewIn(search: Record<string, unknown>): View {
  const jobs = listed(search.jobs).slice(0, COMPARED_MAX);
  const baseline = boundedText(search.baseline, CHARS_MAX);
  return {
    jobs,
    hidden: listed(search.hidden).filter((id) => jobs.includes(id)),
    metric: boundedText(search.metric, CHARS_MAX),
    sort: sortIn(boundedText(search.sort, CHARS_MAX)),
    baseline: baseline !== undefined && jobs.includes(baseline) ? baseline : undefined,
    group: boundedText(search.group, CHARS_MAX),
    colour: boundedText(search.colour, CHARS_MAX),
    scatter: boundedText(search.scatter, CHARS_MAX),
  };
}

/** Without what is left out: the address of a plain comparison has its jobs alone. */
export function written({ jobs, hidden, metric, sort, baseline, group, colour, scatter }: View): Comparison {
  return {
    ...(jobs.length > 0 ? { jobs: jobs.join(",") } : {}),
    ...(hidden.length > 0 ? { hidden: hidden.join(",") } : {}),
    ...(metric === undefined ? {} : { metric }),
    ...(sort === undefined ? {} : { sort: `${sort.isDescending ? "-" : ""}${sort.by}` }),
    ...(baseline === undefined ? {} : { baseline }),
    ...(group === undefined ? {} : { group }),
    ...(colour === undefined ? {} : { colour }),
    ...(scatter === undefined ? {} : { scatter }),
  };
}

export function columnOf(path: string): string {
  return `${OF_SETTING}${path}`;
}

/** The path of a column of a setting; null for another column. */
export function settingOf(column: string): string | null {
  return column.startsWith(OF_SETTING) ? column.slice(OF_SETTING.length) : null;
}

function sortIn(text: string | undefined): Sort | undefined {
  if (text === undefined) return undefined;
  const isDescending = text.startsWith("-");
  const by = isDescending ? text.slice(1) : text;
  return COLUMNS.includes(by) || settingOf(by) ? { by, isDescending } : undefined;
}
