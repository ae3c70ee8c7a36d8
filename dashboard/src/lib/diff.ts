/** Which lines two texts do not share: the shortest such list. */
import { diffArrays } from "diff";

export interface Line {
  kind: "same" | "gone" | "new";
  text: string;
  /** In the text that the line is of (the new one, where both have it), counted from 1. */
  number: number;
}

export function diffLines(before: string, after: string): Line[] {
  const lines: Line[] = [];
  let [old, now] = [0, 0];
  for (const { value, added, removed } of diffArrays(linesOf(before), linesOf(after))) {
    for (const text of value) {
      if (!added) old += 1;
      if (!removed) now += 1;
      lines.push({ kind: added ? "new" : removed ? "gone" : "same", text, number: removed ? old : now });
    }
  }
  return lines;
}

/** The changed lines, each with `around` lines of what is about it; null stands for lines left out. */
export function changedParts(lines: readonly Line[], around = 1): (Line | null)[] {
  const near = (index: number) =>
    lines.slice(Math.max(0, index - around), index + around + 1).some(({ kind }) => kind !== "same");
  const parts: (Line | null)[] = [];
  for (const [index, line] of lines.entries()) {
    if (near(index)) parts.push(line);
    else if (parts.length > 0 && parts.at(-1) !== null) parts.push(null);
  }
  return parts.at(-1) === null ? parts.slice(0, -1) : parts;
}

function linesOf(text: string): string[] {
  return (text.endsWith("\n") ? text.slice(0, -1) : text).split("\n");
}
