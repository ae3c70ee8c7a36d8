/**
 * The part of a log that the page holds: lines that follow each other, never more than a limit, whatever the log's length.
 *
 * It grows at both ends by pages of the service. What grows at one end beyond the limit is dropped at the other and can
 * be asked for again: `before` and `after` are always the places where the lines that are held begin and end.
 */
import type { LogLine, LogPage } from "@/api/generated";
import { compare, cursorAt, type Place, placeOf } from "./log-view";

/** At some 300 bytes a line this is 6 MB, and far more than anybody scrolls through at a time. */
export const WINDOW_LINES_MAX = 20_000;

export interface LogWindow {
  lines: LogLine[];
  /** Where to go on backwards; null at the log's beginning. */
  before: string | null;
  /** Where to go on forwards. */
  after: string;
  /** Nothing was stored behind `after` when it was last asked. */
  atEnd: boolean;
  /** The job has ended and nothing follows. */
  complete: boolean;
}

/** The lines of one page. */
export function opened(page: LogPage, atEnd: boolean): LogWindow {
  return {
    lines: page.lines,
    before: page.prev_cursor ?? null,
    after: page.next_cursor,
    atEnd: atEnd || page.complete,
    complete: page.complete,
  };
}

/**
 * The page asked for with `cursor=asked`, put below. A page of another place changes nothing: the window has moved on
 * since it was asked for.
 *
 * A page that has some lines, but fewer than asked for, is taken for the log's last: at worst, where a filter passes over
 * much, the rest is asked for one poll later.
 */
export function grownDown(
  window: LogWindow,
  asked: string,
  page: LogPage,
  pageLines: number,
  limit: number = WINDOW_LINES_MAX,
): LogWindow {
  if (asked !== window.after) return window;
  const short = page.lines.length > 0 && page.lines.length < pageLines;
  const atEnd = page.complete || short || page.next_cursor === asked;
  if (page.lines.length === 0) {
    const same = page.next_cursor === asked && atEnd === window.atEnd && page.complete === window.complete;
    return same ? window : { ...window, after: page.next_cursor, atEnd, complete: page.complete };
  }
  const all = window.lines.concat(page.lines);
  const lines = all.length > limit ? all.slice(all.length - limit) : all;
  const first = lines[0];
  return {
    lines,
    before: lines.length < all.length && first !== undefined ? cursorAt(first) : window.before,
    after: page.next_cursor,
    atEnd,
    complete: page.complete,
  };
}

/** The page asked for with `before=asked`, put above. */
export function grownUp(window: LogWindow, asked: string, page: LogPage, limit: number = WINDOW_LINES_MAX): LogWindow {
  if (asked !== window.before) return window;
  const before = page.prev_cursor ?? null;
  if (page.lines.length === 0) return { ...window, before };
  const all = page.lines.concat(window.lines);
  const dropped = all[limit];
  if (dropped === undefined) return { ...window, lines: all, before };
  return { lines: all.slice(0, limit), before, after: cursorAt(dropped), atEnd: false, complete: false };
}

/** Index of a line, or -1. */
export function indexOf(lines: LogLine[], place: Place): number {
  const index = firstAtOrBehind(lines, place);
  const line = lines[index];
  return line !== undefined && compare(placeOf(line), place) === 0 ? index : -1;
}

/** Index of the first line at a place or behind it; the number of lines where there is none. */
export function firstAtOrBehind(lines: LogLine[], place: Place): number {
  let low = 0;
  let high = lines.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const line = lines[middle];
    if (line !== undefined && compare(line, place) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
