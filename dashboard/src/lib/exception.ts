/** The exception that the last lines of a rank end with, found by the form in which Python prints one. */
import { pieces } from "./ansi";

export interface Raised {
  /** `RuntimeError: CUDA out of memory.` */
  exception: string;
  /** `File "train.py", line 3, in main`, where it was raised. */
  frame: string | null;
  /** The line of the exception, counted from 0. */
  line: number;
}

const HEAD = "Traceback (most recent call last):";
/** The line of an exception without a traceback, as from another language or a cut log. */
const ALONE = /^[A-Za-z_][\w.]*(Error|Exception)\b/;

export function raisedIn(text: string): Raised | null {
  const lines = text.split("\n").map((line) =>
    pieces(line)
      .map((piece) => piece.text)
      .join("")
      .trimEnd(),
  );
  const head = lines.findLastIndex((line) => line.includes(HEAD));
  if (head >= 0) {
    // Some launchers put the same words before each line.
    const before = (lines[head] as string).indexOf(HEAD);
    const own = lines.map((line) => line.slice(before));
    const line = own.findIndex((each, index) => index > head && /^\S/.test(each));
    if (line >= 0) {
      const frame = own.findLast((each, index) => index > head && index < line && /^\s+File "/.test(each));
      return { exception: own[line] as string, frame: frame?.trim() ?? null, line };
    }
  }
  const line = lines.findLastIndex((each) => ALONE.test(each));
  return line < 0 ? null : { exception: lines[line] as string, frame: null, line };
}
