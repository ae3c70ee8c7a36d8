import { expect, it } from "vitest";
import { changedParts, diffLines } from "./diff";

/** Length of the longest common subsequence by trying every choice of lines: slow, and plainly right. */
function longest(one: string[], other: string[]): number {
  let best = 0;
  for (let choice = 0; choice < 2 ** one.length; choice += 1) {
    const chosen = one.filter((_, index) => choice & (1 << index));
    let at = 0;
    for (const line of other) if (at < chosen.length && chosen[at] === line) at += 1;
    if (at === chosen.length) best = Math.max(best, at);
  }
  return best;
}

it("gives both texts back, and shares as many lines as can be shared", () => {
  let state = 7;
  const next = (below: number) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
  for (let round = 0; round < 150; round += 1) {
    const [one, other] = [next(8) + 1, next(8) + 1].map((count) =>
      Array.from({ length: count }, () => "abc"[next(3)] ?? "a"),
    );
    const lines = diffLines(`${one?.join("\n")}\n`, `${other?.join("\n")}\n`);
    expect(lines.filter(({ kind }) => kind !== "new").map(({ text }) => text)).toEqual(one);
    expect(lines.filter(({ kind }) => kind !== "gone").map(({ text }) => text)).toEqual(other);
    expect(lines.filter(({ kind }) => kind === "same")).toHaveLength(longest(one ?? [], other ?? []));
    for (const { kind, text, number } of lines) expect((kind === "gone" ? one : other)?.[number - 1]).toBe(text);
  }
});

it("shows what changed with a line around it, and says where lines are left out", () => {
  const before = "a\nb\nc\nd\ne\nf\ng\nh\n";
  const shown = changedParts(diffLines(before, "a\nB\nc\nd\ne\nf\ng\nH\n"));
  expect(
    shown.map((line) => (line === null ? "…" : `${{ same: " ", gone: "-", new: "+" }[line.kind]}${line.text}`)),
  ).toEqual([" a", "-b", "+B", " c", "…", " g", "-h", "+H"]);
  expect(changedParts(diffLines(before, before))).toEqual([]);
});
