import { expect, it } from "vitest";
import { csv } from "./csv";

it("quotes what needs it, and says what is not a number by name", () => {
  expect(
    csv(
      ["job", "value"],
      [
        ['a "b", c', 1.5],
        ["two\nlines", Number.NaN],
        ["none", null],
        ["down", Number.NEGATIVE_INFINITY],
      ],
    ),
  ).toBe('job,value\r\n"a ""b"", c",1.5\r\n"two\nlines",NaN\r\nnone,\r\ndown,-Infinity\r\n');
});
