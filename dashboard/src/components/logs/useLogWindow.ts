/**
 * Loads a log by page into a bounded window: opened at its end or around a line, extended at both
 * ends, kept up to date.
 *
 * Pages are requested through the query cache, so that the shell can show the connection, and are
 * not stored there: the window is the only copy. A page of a filtered log may be empty although
 * later lines match, so a search covers several pages, up to a bound; then the user decides.
 */
import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useReducer, useRef } from "react";
import { Failure } from "@/api/client";
import { type GetJobLogsData, getJobLogs, type LogPage } from "@/api/generated";
import { usePace } from "@/api/pace";
import { cursorAt, type LogFilter, type Place } from "@/lib/log-view";
import { grownDown, grownUp, type LogWindow, opened, WINDOW_LINES_MAX } from "@/lib/log-window";

/** Lines of one page. */
const PAGE_LINES = 1_000;
/** Lines around a place that is opened. */
const AROUND_LINES = 400;
/** Lines that end a search: more than a screen. */
const ENOUGH_LINES = 200;
/** Pages of one search. Each covers at least some 32,000 lines if the filter matches none. */
const LOOK_PAGES_MAX = 40;
const POLL_SECONDS = 3.5;

type Ask = NonNullable<GetJobLogsData["query"]>;

interface Reading {
  window: LogWindow | null;
  /** Number of openings: another number is another position in the log, without a view to keep. */
  openings: number;
  openedAtEnd: boolean;
  error: unknown;
  /** Current request of the user; polls are not shown. */
  busy: "opening" | "older" | "newer" | null;
  /** Counts polls that ended, so that the next one is planned. */
  polls: number;
}

type Change =
  | { kind: "busy"; busy: Reading["busy"] }
  | { kind: "opened"; window: LogWindow; atEnd: boolean }
  | { kind: "newer" | "older"; asked: string; page: LogPage }
  | { kind: "polled" }
  | { kind: "failed"; error: unknown };

function changed(reading: Reading, change: Change): Reading {
  const { window } = reading;
  switch (change.kind) {
    case "busy":
      return { ...reading, busy: change.busy };
    case "opened":
      return {
        ...reading,
        window: change.window,
        openings: reading.openings + 1,
        openedAtEnd: change.atEnd,
        error: null,
      };
    case "newer":
      return window === null
        ? reading
        : { ...reading, window: grownDown(window, change.asked, change.page, PAGE_LINES), error: null };
    case "older":
      return window === null
        ? reading
        : { ...reading, window: grownUp(window, change.asked, change.page), error: null };
    case "polled":
      return { ...reading, polls: reading.polls + 1 };
    case "failed":
      return { ...reading, error: change.error, busy: null, polls: reading.polls + 1 };
  }
}

const CLOSED: Reading = { window: null, openings: 0, openedAtEnd: true, error: null, busy: "opening", polls: 0 };

export interface LogReading extends Omit<Reading, "polls"> {
  open: (at: Place | "start" | "end") => void;
  older: () => void;
  newer: () => void;
}

/** The window of one log and one filter: a component that changes either is given a new `key`. */
export function useLogWindow(jobId: string, filter: LogFilter, following: boolean): LogReading {
  const queries = useQueryClient();
  const pace = usePace();
  const [reading, change] = useReducer(changed, CLOSED);
  const latest = useRef(reading);
  latest.current = reading;
  /** Results of searches and polls of an older turn are dropped. */
  const turn = useRef(0);

  const ask = useCallback(
    (query: Ask): Promise<LogPage> =>
      queries.fetchQuery({
        queryKey: ["job", jobId, "logs", filter, query],
        queryFn: async ({ signal }) =>
          (await getJobLogs({ path: { reference: jobId }, query: { ...filter, ...query }, signal, throwOnError: true }))
            .data,
        gcTime: 0,
        staleTime: 0,
      }),
    [queries, jobId, filter],
  );

  /**
   * One search: starts with `first`, continues while `next` names a page and too little was
   * found.
   */
  const look = useCallback(
    async (
      busy: NonNullable<Reading["busy"]>,
      first: () => Promise<{ change: Change; found: number; next: string | null }>,
      goOn: (cursor: string) => Promise<{ change: Change; found: number; next: string | null }>,
    ) => {
      turn.current += 1;
      const mine = turn.current;
      change({ kind: "busy", busy });
      try {
        let step = await first();
        for (let pages = 1, found = 0; mine === turn.current; pages += 1) {
          change(step.change);
          found += step.found;
          if (found >= ENOUGH_LINES || step.next === null || pages >= LOOK_PAGES_MAX) break;
          step = await goOn(step.next);
        }
        if (mine === turn.current) change({ kind: "busy", busy: null });
      } catch (error) {
        if (mine === turn.current) change({ kind: "failed", error });
      }
    },
    [],
  );

  const backward = useCallback(
    async (before: string) => {
      const page = await ask({ before, limit: PAGE_LINES });
      return {
        change: { kind: "older", asked: before, page } satisfies Change,
        found: page.lines.length,
        next: page.prev_cursor ?? null,
      };
    },
    [ask],
  );
  const forward = useCallback(
    async (cursor: string) => {
      const page = await ask({ cursor, limit: PAGE_LINES });
      return {
        change: { kind: "newer", asked: cursor, page } satisfies Change,
        found: page.lines.length,
        next: page.complete || page.next_cursor === cursor ? null : page.next_cursor,
      };
    },
    [ask],
  );

  const open = useCallback(
    (at: Place | "start" | "end") => {
      if (at === "end") {
        const first = async () => {
          const page = await ask({ tail: PAGE_LINES });
          return {
            change: { kind: "opened", window: opened(page, true), atEnd: true } satisfies Change,
            found: page.lines.length,
            next: page.prev_cursor ?? null,
          };
        };
        void look("opening", first, backward);
        return;
      }
      const first = async () => {
        const cursor = at === "start" ? null : cursorAt(at);
        const page = await ask(cursor === null ? { limit: PAGE_LINES } : { cursor, limit: AROUND_LINES });
        let window = opened(page, false);
        if (cursor !== null) {
          const above = await ask({ before: cursor, limit: AROUND_LINES });
          window = grownUp({ ...window, before: cursor }, cursor, above);
        }
        const next = page.complete ? null : page.next_cursor;
        return { change: { kind: "opened", window, atEnd: false } satisfies Change, found: window.lines.length, next };
      };
      void look("opening", first, forward);
    },
    [ask, look, backward, forward],
  );

  const older = useCallback(() => {
    const { window, busy } = latest.current;
    if (window === null || window.before === null || busy !== null) return;
    const { before } = window;
    void look("older", () => backward(before), backward);
  }, [look, backward]);

  const newer = useCallback(() => {
    const { window, busy } = latest.current;
    // At the end the poll loads new lines, unless the window is full and not following.
    if (window === null || busy !== null || window.complete) return;
    if (window.atEnd && window.lines.length < WINDOW_LINES_MAX) return;
    const { after } = window;
    void look("newer", () => forward(after), forward);
  }, [look, forward]);

  const { window, busy, polls, openings, openedAtEnd, error } = reading;
  // A refused request is refused again.
  const isRefused = error instanceof Failure && !error.mayPass;
  const after = window?.after ?? null;
  const mayGrow = following || (window?.lines.length ?? 0) < WINDOW_LINES_MAX;
  const catchesUp = following && window?.atEnd === false;
  const polled =
    after !== null && (window?.atEnd || catchesUp) && !window?.complete && busy === null && mayGrow && !isRefused;
  // biome-ignore lint/correctness/useExhaustiveDependencies: each poll that ended plans the next, also where nothing came
  useEffect(() => {
    if (!polled || after === null || pace.factor === 0) return;
    let over = false;
    const poll = async () => {
      // A hidden page sends no requests; it checks again a moment later.
      if (document.hidden) return change({ kind: "polled" });
      try {
        const step = await forward(after);
        if (!over) change(step.change);
        if (!over) change({ kind: "polled" });
      } catch (error) {
        if (!over) change({ kind: "failed", error });
      }
    };
    const timer = setTimeout(() => void poll(), catchesUp ? 0 : POLL_SECONDS * 1_000 * pace.factor);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [polled, after, catchesUp, polls, pace.factor, forward]);

  return { window, openings, openedAtEnd, error, busy, open, older, newer };
}
