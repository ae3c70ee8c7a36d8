import { expect, it } from "vitest";
import { printable } from "./printable";

it.each([
  ["out/Käse 模型.pt", "out/Käse 模型.pt"],
  ["a\nb\x1b[2J\x7f", "a\\x0ab\\x1b[2J\\x7f"],
  ["gpj.\u202egnp.exe", "gpj.\\u202egnp.exe"],
  ["a\u2028b\u{e0001}", "a\\u2028b\\u{e0001}"],
])("writes %j as %s", (text, seen) => {
  expect(printable(text)).toBe(seen);
});

it("keeps what is allowed", () => {
  expect(printable("a\tb\n\0", "\n\t")).toBe("a\tb\n\\x00");
});
