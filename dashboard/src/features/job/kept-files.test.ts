import { expect, it } from "vitest";
import { exactly, imageType, patternOf, quoted, startOf, textOf } from "./kept-files";

const bytesOf = (text: string) => new TextEncoder().encode(text);

it.each([
  ["loss", "*loss*"],
  ["out/st", "out/st*"],
  ["out/", "out/"],
  ["*.pt", "*.pt"],
])("takes what is typed, %s, as the pattern %s", (typed, pattern) => {
  expect(patternOf(typed)).toBe(pattern);
});

it.each([
  ["a.pt", "/a.pt"],
  ["out/a.pt", "out/a.pt"],
  ["#a", "/#a"],
  ["!a/b", "/!a/b"],
  ["out/[1] *?\\.pt", "out/[[]1] [*][?]\\.pt"],
])("selects %s alone by %s", (path, pattern) => {
  expect(exactly(path)).toBe(pattern);
});

it("knows images by their name", () => {
  expect([imageType("a/b.PNG"), imageType("b.svg"), imageType("readme"), imageType("a.png/b")]).toEqual([
    "image/png",
    "image/svg+xml",
    null,
    null,
  ]);
});

it("reads the beginning of a stream and no more", async () => {
  let pulled = 0;
  let isCancelled = false;
  const stream = new ReadableStream<Uint8Array>(
    {
      pull: (out) => {
        pulled += 1;
        out.enqueue(bytesOf("abcd"));
      },
      cancel: () => {
        isCancelled = true;
      },
    },
    { highWaterMark: 0 },
  );
  expect(new TextDecoder().decode(await startOf(stream, 6))).toBe("abcdab");
  expect([pulled, isCancelled]).toEqual([2, true]);
  expect(await startOf(null, 6)).toHaveLength(0);
});

it("makes text harmless, and takes no other bytes for text", () => {
  expect(textOf(bytesOf("a\r\nb\rc\t\x1b]0;x\x07"))).toBe("a\nb\nc\t\\x1b]0;x\\x07");
  expect(textOf(bytesOf("Käse").subarray(0, 2))).toBe("K");
  expect(textOf(bytesOf("a\0b"))).toBeNull();
  expect(textOf(new Uint8Array([0x80, 0x02, 0x7d]))).toBeNull();
});

it("quotes a name for a shell", () => {
  expect([quoted("out/a-1.pt"), quoted("it's $x")]).toEqual(["out/a-1.pt", "'it'\\''s $x'"]);
});
