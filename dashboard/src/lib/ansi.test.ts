// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { lastState, marked, type Piece, pieces } from "./ansi";

const ESC = "\u001b";

describe("pieces", () => {
  it("are one where nothing is coloured", () => {
    expect(pieces("step 3 loss 0.5")).toEqual([{ text: "step 3 loss 0.5", looks: [] }]);
    expect(pieces("")).toEqual([]);
  });

  it("carry the colour's name", () => {
    expect(pieces(`a ${ESC}[36mbatch${ESC}[0m 3`)).toEqual([
      { text: "a ", looks: [] },
      { text: "batch", looks: ["cyan"] },
      { text: " 3", looks: [] },
    ]);
    expect(pieces(`${ESC}[1;91;44mhot`)).toEqual([{ text: "hot", looks: ["bright-red", "on-blue", "bold"] }]);
    expect(pieces(`${ESC}[2;3;4mquiet`)).toEqual([{ text: "quiet", looks: ["faint", "italic", "underline"] }]);
  });

  it("take the nearest named colour for all others", () => {
    expect(pieces(`${ESC}[38;5;196mx`)[0]?.looks).toEqual(["red"]);
    expect(pieces(`${ESC}[38;2;90;90;250;48;2;2;180;10mx`)[0]?.looks).toEqual(["bright-blue", "on-green"]);
  });

  it("leave HTML as the text it is", () => {
    const text = '<img src=x onerror="alert(1)"> & <b>';
    expect(pieces(`${ESC}[31m${text}`)).toEqual([{ text, looks: ["red"] }]);
  });

  it("say nothing of cursor movements, titles and links", () => {
    expect(pieces(`${ESC}[2K${ESC}[1Adone`)).toEqual([{ text: "done", looks: [] }]);
    const link = pieces(`see ${ESC}]8;;https://example.org${ESC}\\here${ESC}]8;;${ESC}\\ now`);
    expect(link.map((piece) => piece.text).join("")).not.toContain(ESC);
  });

  it("keep blanks, which ends of tables are made of", () => {
    expect(pieces(`${ESC}[32m  a${ESC}[0m  b  `).map((piece) => piece.text)).toEqual(["  a", "  b  "]);
  });
});

describe("lastState", () => {
  it.each([
    ["10%\r50%\r100%", "100%"],
    ["100%\r", "100%"],
    ["10%\r100%\r\r", "100%"],
    ["plain", "plain"],
    ["\r", ""],
  ])("%j is %j", (line, state) => {
    expect(lastState(line)).toBe(state);
  });
});

describe("marked", () => {
  /** Which characters are marked, by trying each place. */
  function bruteForce(text: string, needle: string): boolean[] {
    const hit = Array.from(text, () => false);
    for (let at = 0; at + needle.length <= text.length; ) {
      if (text.slice(at, at + needle.length).toLowerCase() === needle.toLowerCase()) {
        hit.fill(true, at, at + needle.length);
        at += needle.length;
      } else at += 1;
    }
    return hit;
  }

  it.each([
    [["loss is loss"], "LOSS"],
    [["lo", "s", "s and more"], "loss"],
    [["aaaa", "a"], "aa"],
    [["nothing here"], "x"],
    [["ab", "cd", "ef"], "bcde"],
    [["end", " of it"], "it"],
  ])("cuts %j at each %j, and loses nothing", (texts, needle) => {
    const line: Piece[] = texts.map((text, index) => ({ text, looks: [`look${index}`] }));
    const cut = marked(line, needle);
    const hits = cut.flatMap((piece) => Array.from(piece.text, () => piece.hit === true));
    expect(hits).toEqual(bruteForce(texts.join(""), needle));
    const look = (all: Piece[]) => all.flatMap((piece) => Array.from(piece.text, (letter) => letter + piece.looks[0]));
    expect(look(cut)).toEqual(look(line));
    expect(cut.every((piece) => piece.text !== "")).toBe(true);
  });

  it("marks nothing without a needle", () => {
    const line = [{ text: "a", looks: [] }];
    expect(marked(line, "")).toBe(line);
  });

  it("does not shift marks behind a letter whose small form is longer", () => {
    expect(marked([{ text: "İ loss", looks: [] }], "loss").find((piece) => piece.hit)?.text).toBe("loss");
  });
});
