/** Which lines two texts do not share: the shortest such list, by their longest common subsequence. */

export interface Line {
  kind: "same" | "gone" | "new";
  text: string;
  /** In the text that the line is of (the new one, where both have it), counted from 1. */
  number: number;
}

export function diffLines(before: string, after: string): Line[] {
  const one = linesOf(before);
  const other = linesOf(after);
  // common[i][j]: length of the longest common subsequence of one[i..] and other[j..].
  const common = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  const at = (i: number, j: number) => common[i]?.[j] ?? 0;
  for (let i = one.length - 1; i >= 0; i -= 1) {
    const row = common[i] as Uint16Array;
    for (let j = other.length - 1; j >= 0; j -= 1) {
      row[j] = one[i] === other[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < one.length || j < other.length) {
    const [mine, theirs] = [one[i], other[j]];
    if (mine !== undefined && mine === theirs) {
      lines.push({ kind: "same", text: mine, number: j + 1 });
      i += 1;
      j += 1;
    } else if (mine !== undefined && (theirs === undefined || at(i + 1, j) >= at(i, j + 1))) {
      lines.push({ kind: "gone", text: mine, number: i + 1 });
      i += 1;
    } else {
      lines.push({ kind: "new", text: theirs ?? "", number: j + 1 });
      j += 1;
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

/** Lines beyond this are compared as one: a spec has a page, and the table grows with the square. */
const LINES_MAX = 3_000;

function linesOf(text: string): string[] {
  const lines = (text.endsWith("\n") ? text.slice(0, -1) : text).split("\n");
  return lines.length <= LINES_MAX ? lines : [...lines.slice(0, LINES_MAX), lines.slice(LINES_MAX).join("\n")];
}
