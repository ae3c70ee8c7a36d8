import { describe, expect, it } from "vitest";
import type { LogLine, LogPage } from "@/api/generated";
import { cursorAt } from "./log-view";
import { firstAtOrBehind, grownDown, grownUp, indexOf, type LogWindow, opened } from "./log-window";

function line(attempt: number, number: number): LogLine {
  return {
    attempt,
    line: number,
    rank: 0,
    stream: "stdout",
    time: "2026-01-01T00:00:00Z",
    text: `${attempt}/${number}`,
  };
}

/** A log of two attempts that is read by page as the service does it. */
class Log {
  lines: LogLine[] = [];
  ended = false;

  write(attempt: number, count: number): void {
    const start = this.lines.filter((each) => each.attempt === attempt).length;
    for (let index = 0; index < count; index += 1) this.lines.push(line(attempt, start + index));
  }

  page(from: number, to: number): LogPage {
    const next = this.lines[to];
    const last = this.lines.at(-1);
    const first = this.lines[from];
    return {
      lines: this.lines.slice(from, to),
      prev_cursor: from === 0 || first === undefined ? null : cursorAt(first),
      next_cursor: next ? cursorAt(next) : last ? cursorAt({ ...last, line: last.line + 1 }) : "0.0",
      complete: this.ended && next === undefined,
    };
  }

  index(cursor: string): number {
    const [attempt = 0, number = 0] = cursor.split(".").map(Number);
    const found = this.lines.findIndex(
      (each) => each.attempt > attempt || (each.attempt === attempt && each.line >= number),
    );
    return found < 0 ? this.lines.length : found;
  }

  forward(cursor: string, limit: number): LogPage {
    const from = this.index(cursor);
    return this.page(from, Math.min(this.lines.length, from + limit));
  }

  backward(cursor: string, limit: number): LogPage {
    const to = this.index(cursor);
    return this.page(Math.max(0, to - limit), to);
  }
}

/** Numbers that look random and are the same in every run. */
function* dice(seed: number): Generator<number, number> {
  let state = seed;
  while (true) {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    yield state / 2_147_483_648;
  }
}

describe("a window that grows at random", () => {
  it.each([1, 2, 3, 4])("holds lines that follow each other, the edges where they are said to be (seed %d)", (seed) => {
    const rolls = dice(seed);
    const roll = (sides: number) => Math.floor(rolls.next().value * sides);
    const limit = 12;
    const log = new Log();
    log.write(1, 40);
    let window: LogWindow = opened(log.backward("1.40", 5), true);
    for (let turn = 0; turn < 400; turn += 1) {
      const size = 1 + roll(6);
      switch (roll(4)) {
        case 0:
          log.write(turn < 200 ? 1 : 2, roll(4));
          break;
        case 1:
          window = grownDown(window, window.after, log.forward(window.after, size), size, limit);
          break;
        default:
          if (window.before !== null) {
            window = grownUp(window, window.before, log.backward(window.before, size), limit);
          }
      }
      const from = window.before === null ? 0 : log.index(window.before);
      const to = log.index(window.after);
      expect(window.lines).toEqual(log.lines.slice(from, to));
      expect(window.lines.length).toBeLessThanOrEqual(limit);
    }
  });
});

it("is at the end only where the service had nothing more", () => {
  const log = new Log();
  log.write(1, 10);
  let window = opened(log.forward("1.0", 4), false);
  const read = (count: number) => grownDown(window, window.after, log.forward(window.after, count), count);
  expect(window).toMatchObject({ before: null, atEnd: false });
  window = read(3);
  expect(window.atEnd).toBe(false);
  window = read(3);
  expect(window).toMatchObject({ atEnd: false, after: "1.10" });
  window = read(3);
  expect(window).toMatchObject({ atEnd: true, complete: false });
  log.write(1, 2);
  window = read(3);
  expect(window).toMatchObject({ atEnd: true, complete: false });
  log.ended = true;
  window = read(3);
  expect(window).toMatchObject({ atEnd: true, complete: true });
  expect(window.lines).toHaveLength(12);
});

it("goes on behind a page in which the filter found nothing", () => {
  const window = opened({ lines: [line(1, 3)], next_cursor: "1.4", prev_cursor: null, complete: false }, true);
  const empty: LogPage = { lines: [], next_cursor: "1.900", prev_cursor: null, complete: false };
  expect(grownDown(window, "1.4", empty, 5)).toMatchObject({ after: "1.900", atEnd: false, lines: window.lines });
});

it("is the same window where nothing came, so that nothing is drawn again", () => {
  const window = opened({ lines: [line(1, 3)], next_cursor: "1.4", prev_cursor: null, complete: false }, true);
  const nothing: LogPage = { lines: [], next_cursor: "1.4", prev_cursor: null, complete: false };
  expect(grownDown(window, "1.4", nothing, 5)).toBe(window);
});

it("drops a page that was asked for at a place it has left since", () => {
  const log = new Log();
  log.write(1, 30);
  const window = opened(log.page(10, 20), false);
  expect(grownDown(window, "1.3", log.forward("1.3", 5), 5)).toBe(window);
  expect(grownUp(window, "1.3", log.backward("1.3", 2))).toBe(window);
});

it("is not at the end any more once lines were dropped there", () => {
  const log = new Log();
  log.write(1, 30);
  log.ended = true;
  const tail = opened(log.backward("1.30", 8), true);
  expect(tail).toMatchObject({ atEnd: true, complete: true });
  const grown = grownUp(tail, "1.22", log.backward("1.22", 8), 10);
  expect(grown).toMatchObject({ atEnd: false, complete: false, before: "1.14", after: "1.24" });
});

it("finds lines by place as a search from the top does", () => {
  const lines = [line(1, 2), line(1, 5), line(1, 6), line(2, 0), line(2, 4)];
  for (let attempt = 0; attempt <= 3; attempt += 1) {
    for (let number = 0; number <= 7; number += 1) {
      const place = { attempt, line: number };
      const found = lines.findIndex((each) => each.attempt === attempt && each.line === number);
      expect(indexOf(lines, place)).toBe(found);
      const behind = lines.filter(
        (each) => each.attempt < attempt || (each.attempt === attempt && each.line < number),
      ).length;
      expect(firstAtOrBehind(lines, place)).toBe(behind);
    }
  }
});
