import { describe, expect, it } from "vitest";
import { ago, bytes, duration, moment, number, zone } from "./format";

describe("duration", () => {
  it.each([
    [0, "0 s"],
    [0.01, "<0.1 s"],
    [0.4, "0.4 s"],
    [0.97, "1 s"],
    [59.4, "59 s"],
    [59.6, "1 min 00 s"],
    [245, "4 min 05 s"],
    [7_805, "2 h 10 min"],
    [273_600, "3 d 4 h"],
    [Number.NaN, "–"],
  ])("says %d seconds as %s", (seconds, words) => {
    expect(duration(seconds)).toBe(words);
  });
});

describe("ago", () => {
  const now = Date.parse("2026-11-22T12:00:00Z");
  it.each([
    ["2026-11-22T12:00:05Z", "just now"],
    ["2026-11-22T11:59:48Z", "12 s ago"],
    ["2026-11-22T11:57:00Z", "3 min ago"],
    ["2026-11-22T10:00:00Z", "2 h ago"],
    ["2026-11-17T12:00:00Z", "5 d ago"],
  ])("%s is %s", (iso, words) => {
    expect(ago(iso, now)).toBe(words);
  });
});

describe("number", () => {
  it.each([
    [12_345, "12,345"],
    [0, "0"],
    [0.0012345678, "0.0012346"],
    [1.2e-9, "1.2e-9"],
    [-2e9, "-2 G"],
    [1_234_567_890_123, "1.2346 T"],
    [1.5e15, "1.5e15"],
    [Number.NaN, "NaN"],
    [Number.NEGATIVE_INFINITY, "-Infinity"],
    [4_321.55, "4,321.6"],
  ])("%d reads %s", (value, text) => {
    expect(number(value)).toBe(text);
  });
});

it("counts bytes in powers of 1,024", () => {
  expect([bytes(0), bytes(1_023), bytes(1_536), bytes(3 * 1_024 ** 3)]).toEqual([
    "0 B",
    "1023 B",
    "1.50 KiB",
    "3.00 GiB",
  ]);
});

it("writes a moment in the reader's own time", () => {
  const iso = new Date(2026, 0, 2, 3, 4, 5).toISOString();
  expect(moment(iso)).toBe(`2026-01-02 03:04:05 ${zone(-new Date(iso).getTimezoneOffset())}`);
  expect([0, 60, 330, -210].map(zone)).toEqual(["UTC", "UTC+1", "UTC+5:30", "UTC-3:30"]);
});
