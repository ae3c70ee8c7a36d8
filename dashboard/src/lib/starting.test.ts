import { describe, expect, it } from "vitest";
import { startSentence, startWords } from "./starting";

/** In the reader's time zone, whatever that is where the tests run. */
const NOW = new Date(2026, 10, 22, 14, 10, 20);

function words(start: Date | null) {
  return startSentence(startWords({ position: 1, reason: "", estimated_start: start?.toISOString() }, NOW.getTime()));
}

describe("an estimated start", () => {
  it.each([
    [new Date(2026, 10, 22, 14, 35), "about 14:35, in 25 min"],
    [new Date(2026, 10, 22, 14, 10, 45), "about 14:10, in less than a minute"],
    [new Date(2026, 10, 22, 16, 10, 20), "about 16:10, in 2 h"],
    [new Date(2026, 10, 22, 16, 25, 20), "about 16:25, in 2 h 15 min"],
    [new Date(2026, 10, 23, 9, 5), "about tomorrow 09:05, in 18 h 55 min"],
    [new Date(2026, 10, 24, 18, 10, 20), "about 2026-11-24 18:10, in 2 d 4 h"],
    [new Date(2026, 11, 1, 14, 10, 20), "about 2026-12-01 14:10, in 9 d"],
  ])("%s: %s", (start, said) => {
    expect(words(start)).toBe(said);
  });

  it("that has passed is due at any moment", () => {
    expect(words(new Date(2026, 10, 22, 14, 10, 20))).toBe("any moment now");
  });

  it("names tomorrow on the last day of a month", () => {
    const start = new Date(2026, 11, 1, 0, 30).toISOString();
    const now = new Date(2026, 10, 30, 23, 50).getTime();
    expect(startWords({ position: 1, reason: "", estimated_start: start }, now).when).toBe("about tomorrow 00:30");
  });

  it("counts minutes as a clock does, for any distance of less than a day", () => {
    for (let minutes = 1; minutes < 24 * 60; minutes += 7) {
      const more = words(new Date(NOW.getTime() + minutes * 60_000)).split(", in ")[1] ?? "";
      const [, hours = "0", rest = "0"] = /^(?:(\d+) h ?)?(?:(\d+) min)?$/.exec(more) ?? ["", "-1", "-1"];
      expect(60 * Number(hours) + Number(rest)).toBe(minutes);
    }
  });
});

it("that is not known has its cause", () => {
  expect(words(null)).toBe("not processed yet");
  expect(startWords(null, 0).when).toBe("not processed yet");
  expect(startWords({ position: 1, reason: "", code: "limit" }, 0).when).toBe("once below its device limit");
  expect(startWords({ position: 1, reason: "", code: "behind" }, 0).when).toBe("after jobs without a time limit");
});
