import { describe, expect, it } from "vitest";
import { randomFrom } from "@/testing/random";
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

  it("leave out cursor movements and titles", () => {
    expect(pieces(`${ESC}[2K${ESC}[1Adone${ESC}]0;a title\u0007`)).toEqual([{ text: "done", looks: [] }]);
    expect(pieces(`${ESC}(Bplain${ESC}[?25h${ESC}7!`).map((piece) => piece.text)).toEqual(["plain", "!"]);
  });

  it.each([
    ["\u001b\\", "ends with ST"],
    ["\u0007", "ends with BEL"],
  ])("keep the text of a hyperlink and its address (%j, %s)", (end) => {
    const [before, here, after] = pieces(
      `see ${ESC}]8;id=1;https://example.org/a?b${end}${ESC}[4mhere${ESC}[0m${ESC}]8;;${end} now`,
    );
    expect(before).toEqual({ text: "see ", looks: [] });
    expect(here).toEqual({ text: "here", looks: ["underline"], href: "https://example.org/a?b" });
    expect(after).toEqual({ text: " now", looks: [] });
  });

  it.each(["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "not an address"])(
    "keep the text of a link to %s, without the link",
    (address) => {
      expect(pieces(`${ESC}]8;;${address}${ESC}\\here${ESC}]8;;${ESC}\\`)).toEqual([{ text: "here", looks: [] }]);
    },
  );

  it("show inverse and struck text", () => {
    expect(pieces(`${ESC}[7mPASSED${ESC}[27m ${ESC}[9mold${ESC}[29m!`)).toEqual([
      { text: "PASSED", looks: ["inverse"] },
      { text: " ", looks: [] },
      { text: "old", looks: ["strike"] },
      { text: "!", looks: [] },
    ]);
    // A colour that is swapped with its ground is not readable in every theme; the page's own swapped colours are.
    expect(pieces(`${ESC}[31;7;1mx`)[0]?.looks).toEqual(["inverse", "bold"]);
  });

  it("read colours with colons too, and reset one by one", () => {
    expect(pieces(`${ESC}[38:2::187:0:0mx`)[0]?.looks).toEqual(["red"]);
    expect(pieces(`${ESC}[38:5:2mx`)[0]?.looks).toEqual(["green"]);
    expect(pieces(`${ESC}[31;44mx${ESC}[39my${ESC}[49mz`).map((piece) => piece.looks)).toEqual([
      ["red", "on-blue"],
      ["on-blue"],
      [],
    ]);
    expect(pieces(`${ESC}[1;58;5;9;4mx`)[0]?.looks).toEqual(["bold", "underline"]);
  });

  it("never lose a letter of the text, whatever stands between", () => {
    const random = randomFrom(7);
    const noise = [
      `${ESC}[31m`,
      `${ESC}[38;5;300m`,
      `${ESC}[38;5m`,
      `${ESC}[;;m`,
      `${ESC}[999m`,
      `${ESC}[8m`,
      `${ESC}]8;;https://example.org${ESC}\\`,
      `${ESC}]8;;${ESC}\\`,
      `${ESC}]8;;nothing\u0007`,
      `${ESC}]2;title\u0007`,
      `${ESC}[2K`,
      `${ESC}(B`,
      `${ESC}=`,
    ];
    for (let round = 0; round < 300; round += 1) {
      let line = "";
      let text = "";
      for (let part = 0; part < 12; part += 1) {
        const word = `word${Math.floor(random() * 1_000)} `;
        line += (noise[Math.floor(random() * noise.length)] as string) + word;
        text += word;
      }
      const shown = pieces(line);
      expect(shown.map((piece) => piece.text).join("")).toBe(text);
    }
    // A sequence that was cut off by the end of the line, or by a limit of the line's length.
    for (const cut of [`${ESC}]8;;https://exam`, `${ESC}[38;5`, `${ESC}]0;tit`, ESC])
      expect(
        pieces(`before ${cut}`)
          .map((piece) => piece.text)
          .join(""),
      ).toBe(`before ${cut.slice(1)}`);
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
