/**
 * What of a log is shown, as the address keeps it: the filters that the service applies, and the line that is pointed at.
 *
 * People count lines from 1 and the service from 0; this file is the only place that knows both. A line is named with
 * its attempt, `2-501`, because each attempt counts its own.
 */
import type { LogLine } from "@/api/generated";
import { asText } from "./listed";

export const STREAMS = ["stdout", "stderr", "launcher"] as const;
export type Stream = (typeof STREAMS)[number];

/** In place of a line: the first one that tells of an error, wherever that turns out to be. */
export const FIRST_ERROR = "first-error";

export interface LogView {
  attempt?: number;
  /** -1 is the launcher. */
  rank?: number;
  stream?: Stream;
  search?: string;
  line?: string;
}

export interface LogFilter {
  attempt?: number;
  rank?: number;
  stream?: Stream;
  search?: string;
}

/** A line by its attempt and its number there, counted from 0 as the service does. */
export interface Place {
  attempt: number;
  line: number;
}

const SEARCH_CHARS_MAX = 200;

/** What is no such view is left out: an address may be typed by hand, or be older than this page. */
export function readLogView(search: Record<string, unknown>): LogView {
  const view: LogView = {};
  const attempt = whole(search.attempt);
  if (attempt !== null && attempt >= 1) view.attempt = attempt;
  const rank = whole(search.rank);
  if (rank !== null && rank >= -1) view.rank = rank;
  if (STREAMS.includes(search.stream as Stream)) view.stream = search.stream as Stream;
  // The router reads what looks like a number as one.
  const text = asText(search.search) ?? "";
  if (text !== "") view.search = text.slice(0, SEARCH_CHARS_MAX);
  const line = String(search.line ?? "");
  if (line === FIRST_ERROR || readPlace(line) !== null) view.line = line;
  return view;
}

export function filterOf({ attempt, rank, stream, search }: LogView): LogFilter {
  return Object.fromEntries(
    Object.entries({ attempt, rank, stream, search }).filter(([, value]) => value !== undefined),
  );
}

/** The filters that are on, in words: for an empty list, which must say why it is empty. */
export function filtersInWords({ attempt, rank, stream, search }: LogFilter): string[] {
  const words: string[] = [];
  if (attempt !== undefined) words.push(`attempt ${attempt}`);
  if (rank !== undefined) words.push(rankName(rank));
  if (stream !== undefined) words.push(stream);
  if (search !== undefined) words.push(`containing “${search}”`);
  return words;
}

export function rankName(rank: number): string {
  return rank < 0 ? "launcher" : `rank ${rank}`;
}

export function placeOf({ attempt, line }: LogLine): Place {
  return { attempt, line };
}

export function writePlace({ attempt, line }: Place): string {
  return `${attempt}-${line + 1}`;
}

export function readPlace(text: string): Place | null {
  const match = /^([1-9]\d{0,8})-([1-9]\d{0,14})$/.exec(text);
  return match === null ? null : { attempt: Number(match[1]), line: Number(match[2]) - 1 };
}

/** The service's cursor for the place before a line. */
export function cursorAt({ attempt, line }: Place): string {
  return `${attempt}.${line}`;
}

/** Less than 0 where `a` stands above `b`. */
export function compare(a: Place, b: Place): number {
  return a.attempt - b.attempt || a.line - b.line;
}

function whole(value: unknown): number | null {
  const number = typeof value === "string" && value !== "" ? Number(value) : value;
  return typeof number === "number" && Number.isSafeInteger(number) ? number : null;
}
