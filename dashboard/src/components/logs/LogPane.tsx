/** Lines of one log and one filter, with their status: position, empty result, failure. */
import { type MouseEvent, type ReactNode, useCallback, useEffect, useRef } from "react";
import type { LogLine } from "@/api/generated";
import { Button } from "@/components/Button";
import { Failed } from "@/components/Failed";
import { number as figure } from "@/lib/format";
import {
  compare,
  filtersInWords,
  type LogFilter,
  type LogView,
  type Place,
  readPlace,
  writePlace,
} from "@/lib/log-view";
import { indexOf, type LogWindow } from "@/lib/log-window";
import { LogList } from "./LogList";
import classes from "./LogViewer.module.css";
import { useLogWindow } from "./useLogWindow";

interface LogPaneProps {
  jobId: string;
  filter: LogFilter;
  view: LogView;
  severalAttempts: boolean;
  /** The line is still being looked for: nothing is opened before it is known. */
  waits: boolean;
  following: boolean;
  onFollow: (following: boolean) => void;
  wrap: boolean;
  showTime: boolean;
  onView: (view: LogView) => void;
  onChoose: (view: LogView) => void;
  hrefOf: (view: LogView) => string;
}

export function LogPane(props: LogPaneProps) {
  const { jobId, filter, view, severalAttempts, waits, following, onFollow, wrap, showTime, onView, onChoose } = props;
  const { hrefOf } = props;
  const {
    window: held,
    openings,
    openedAtEnd,
    error,
    busy,
    open,
    older,
    newer,
  } = useLogWindow(jobId, filter, following);
  const pointedAt = view.line === undefined ? null : readPlace(view.line);
  const target = pointedAt === null ? null : writePlace(pointedAt);
  const latest = useRef(held);
  latest.current = held;

  useEffect(() => {
    if (waits) return;
    const place = target === null ? null : readPlace(target);
    if (place === null) {
      if (latest.current === null) open("end");
    } else if (latest.current === null || !spans(latest.current, place)) open(place);
  }, [waits, target, open]);
  useEffect(() => {
    // Following from the middle of the log jumps to its end.
    if (following && latest.current !== null && !latest.current.atEnd) open("end");
  }, [following, open]);

  const letGo = useCallback(() => onFollow(false), [onFollow]);
  const jump = (to: "start" | "end") => {
    onFollow(false);
    onView({ ...view, line: undefined });
    open(to);
  };
  const number = useCallback(
    (line: LogLine, children: ReactNode) => {
      // Among its neighbours: a line that a search found is opened without the search.
      const to = { ...view, search: undefined, line: writePlace(line) };
      const onClick = (event: MouseEvent) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
        event.preventDefault();
        onFollow(false);
        onView(to);
      };
      return (
        <a href={hrefOf(to)} onClick={onClick}>
          {children}
        </a>
      );
    },
    [view, hrefOf, onView, onFollow],
  );

  const failed = error === null ? null : <Failed error={error} retry={() => open("end")} />;
  if (held === null) return failed ?? <div className={classes.blank} aria-busy="true" />;
  const isMissing = pointedAt !== null && busy === null && indexOf(held.lines, pointedAt) < 0;
  return (
    <>
      {failed}
      {held.lines.length === 0 && busy === null ? (
        <NoLines held={held} filter={filter} onSearchOn={older} onClear={() => onChoose({})} />
      ) : (
        <LogList
          key={openings}
          window={held}
          startsAtEnd={openedAtEnd}
          search={filter.search ?? ""}
          pointedAt={pointedAt}
          following={following}
          wrap={wrap}
          showTime={showTime}
          severalAttempts={severalAttempts}
          number={number}
          onLetGo={letGo}
          onNearStart={older}
          onNearEnd={newer}
        />
      )}
      <div className={classes.foot}>
        <span className={classes.where} data-testid="log-where">
          {where(held, filter, busy !== null)}
          {isMissing ? ` Line ${view.line} is not among them.` : ""}
        </span>
        <Button size="xs" onClick={() => jump("start")}>
          Start
        </Button>
        <Button size="xs" onClick={() => jump("end")}>
          End
        </Button>
        {/* No line follows the last one of a log that ended. */}
        {held.complete ? null : (
          <Button
            size="xs"
            aria-pressed={following}
            title={following ? "Pause (f)" : "Keep to the newest line (f)"}
            onClick={() => onFollow(!following)}
          >
            Live
          </Button>
        )}
      </div>
    </>
  );
}

function NoLines({
  held,
  filter,
  onSearchOn,
  onClear,
}: {
  held: LogWindow;
  filter: LogFilter;
  onSearchOn: () => void;
  onClear: () => void;
}) {
  const words = filtersInWords(filter);
  const goesOn = held.before !== null;
  return (
    <div className={classes.none}>
      {words.length === 0 ? (
        <p>{held.complete ? "This job wrote no line." : "No line yet. Lines are shown here as they are written."}</p>
      ) : (
        <>
          <p>
            {goesOn ? "No line so far fits " : "No line fits "}
            {words.length === 1 ? "the filter" : "all filters"}: {words.join(", ")}.
          </p>
          {goesOn ? (
            <Button size="xs" onClick={onSearchOn}>
              Search further up
            </Button>
          ) : null}
          <Button size="xs" onClick={onClear}>
            Show all lines
          </Button>
        </>
      )}
    </div>
  );
}

/** Whether a position lies between the first and the last loaded line. */
function spans({ lines }: LogWindow, place: Place): boolean {
  const [first, last] = [lines[0], lines.at(-1)];
  return first !== undefined && last !== undefined && compare(first, place) <= 0 && compare(place, last) <= 0;
}

function where({ lines, before, atEnd, complete }: LogWindow, filter: LogFilter, busy: boolean): string {
  const [first, last] = [lines[0], lines.at(-1)];
  if (first === undefined || last === undefined) return busy ? "Reading…" : "";
  const name = ({ attempt, line }: LogLine) =>
    first.attempt === last.attempt ? figure(line + 1) : `${figure(line + 1)} of attempt ${attempt}`;
  const range = lines.length === 1 ? `line ${name(first)}` : `lines ${name(first)} to ${name(last)}`;
  const fit = filtersInWords(filter).length === 0 ? "" : `${figure(lines.length)} fit, `;
  const said = [
    `${fit}${range}`,
    before === null ? "from the beginning" : "",
    complete ? "to the end" : atEnd ? "up to now" : "",
  ].filter((part) => part !== "");
  const text = said.join(", ");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${busy ? " · reading…" : ""}`;
}
