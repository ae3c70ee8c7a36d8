/**
 * Virtual list of the lines of a window: only visible lines are drawn, and they keep their position
 * while lines are added or removed above and below.
 *
 * It stays at the end while `following`, and reports when the user scrolls up or selects text,
 * which ends the following.
 */
import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useEffect, useLayoutEffect, useRef } from "react";
import type { LogLine } from "@/api/generated";
import { type Place, writePlace } from "@/lib/log-view";
import { indexOf, type LogWindow } from "@/lib/log-window";
import classes from "./LogList.module.css";
import { LogRow } from "./LogRow";

/** As in LogRow.module.css: the least height of a target, which the number of a line is. */
const LINE_PX = 24;
const OVERSCAN_LINES = 20;
/** Nearer to the end is at the end. */
const END_PX = 4;
/** More lines are asked for when so few are left to scroll. */
const NEAR_LINES = 300;

interface LogListProps {
  /** Another `key` where another place of the log is opened. */
  window: LogWindow;
  /** Initial position without a selected line. */
  startsAtEnd: boolean;
  search: string;
  pointedAt: Place | null;
  following: boolean;
  wrap: boolean;
  showTime: boolean;
  severalAttempts: boolean;
  number: (line: LogLine, children: ReactNode) => ReactNode;
  onLetGo: () => void;
  onNearStart: () => void;
  onNearEnd: () => void;
}

export function LogList(props: LogListProps) {
  const { window: held, startsAtEnd, search, pointedAt, following, wrap, showTime, severalAttempts, number } = props;
  const { onLetGo, onNearStart, onNearEnd } = props;
  const { lines } = held;
  const box = useRef<HTMLElement>(null);
  const rows = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => LINE_PX,
    overscan: OVERSCAN_LINES,
    getItemKey: (index) => {
      const line = lines[index];
      return line === undefined ? index : writePlace(line);
    },
    // Keeps the first line that is seen in its place when lines are put above it, or dropped there.
    anchorTo: "end",
    followOnAppend: following,
    scrollEndThreshold: END_PX,
  });

  // biome-ignore lint/correctness/useExhaustiveDependencies: once, when it is opened
  useLayoutEffect(() => {
    if (startsAtEnd) rows.scrollToEnd();
  }, []);
  const seen = useRef(0);
  seen.current = rows.getVirtualItemForOffset(rows.scrollOffset ?? 0)?.index ?? 0;
  const wrapped = useRef(wrap);
  useLayoutEffect(() => {
    if (wrapped.current === wrap) return;
    wrapped.current = wrap;
    // All heights are others now. The first line that was seen stays the first.
    rows.measure();
    rows.scrollToIndex(seen.current, { align: "start" });
  }, [wrap, rows]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: also when lines have come and when they are laid out anew
  useLayoutEffect(() => {
    if (following) rows.scrollToEnd();
  }, [following, lines, wrap, rows]);
  useEffect(() => {
    if (!following || box.current === null) return;
    // The virtual list reports a new height only where it draws other lines.
    const observer = new ResizeObserver(() => rows.scrollToEnd());
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [following, rows]);

  const pointed = pointedAt === null ? -1 : indexOf(lines, pointedAt);
  const isThere = pointed >= 0;
  const target = pointedAt === null ? null : writePlace(pointedAt);
  // biome-ignore lint/correctness/useExhaustiveDependencies: scrolled to once for each line that is pointed at, not when its index moves
  useLayoutEffect(() => {
    if (isThere && !following) rows.scrollToIndex(pointed, { align: "center" });
  }, [target, isThere]);

  useLetGo(box, following, onLetGo);

  const items = rows.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;
  const nearStart = held.before !== null && first < NEAR_LINES;
  const nearEnd = !following && last >= lines.length - 1 - OVERSCAN_LINES;
  // biome-ignore lint/correctness/useExhaustiveDependencies: asked again for each window in which the edge is still near
  useEffect(() => {
    if (nearStart && !following) onNearStart();
  }, [nearStart, following, lines]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: as above
  useEffect(() => {
    if (nearEnd) onNearEnd();
  }, [nearEnd, lines]);

  return (
    <section
      ref={box}
      className={classes.box}
      aria-label="Log lines"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard
      tabIndex={0}
      data-wrap={wrap || undefined}
      data-testid="log-lines"
    >
      <div className={classes.all} style={{ height: rows.getTotalSize() }}>
        {items.map(({ index, key, start }) => {
          const line = lines[index];
          if (line === undefined) return null;
          return (
            <div
              key={key}
              data-index={index}
              ref={wrap ? rows.measureElement : undefined}
              className={classes.place}
              style={{ transform: `translateY(${start}px)` }}
            >
              <LogRow
                line={line}
                severalAttempts={severalAttempts}
                search={search}
                showTime={showTime}
                isPointedAt={index === pointed}
                number={number}
              />
            </div>
          );
        })}
      </div>
    </section>
  );
}

/** Detect that the user scrolled up or selected text while following. */
function useLetGo(box: React.RefObject<HTMLElement | null>, following: boolean, letGo: () => void): void {
  const tell = useRef(letGo);
  tell.current = letGo;
  useEffect(() => {
    const element = box.current;
    if (!following || element === null) return;
    let { scrollTop: top, scrollHeight: height } = element;
    const onScroll = () => {
      // A window that grows moves the lines down, too, but not away from their end.
      const below = element.scrollHeight - element.clientHeight - element.scrollTop;
      if (element.scrollHeight === height && element.scrollTop < top - 1 && below > END_PX) tell.current();
      top = element.scrollTop;
      height = element.scrollHeight;
    };
    const onWheel = (event: WheelEvent) => {
      if (event.deltaY < 0 && element.scrollTop > 0) tell.current();
    };
    const onSelect = () => {
      const selection = document.getSelection();
      if (selection !== null && !selection.isCollapsed && element.contains(selection.anchorNode)) tell.current();
    };
    element.addEventListener("scroll", onScroll, { passive: true });
    element.addEventListener("wheel", onWheel, { passive: true });
    document.addEventListener("selectionchange", onSelect);
    return () => {
      element.removeEventListener("scroll", onScroll);
      element.removeEventListener("wheel", onWheel);
      document.removeEventListener("selectionchange", onSelect);
    };
  }, [box, following]);
}
