import { expect, it } from "vitest";
import { timeLimitWords } from "./time-limit";

it.each([
  [86_400, "service", "1 d, default of the service"],
  [7_200, "project", "2 h, default of the project"],
  [5_400, "job", "1 h 30 min"],
  [60, null, "1 min"],
] as const)("says of %d s of %s: %s", (seconds, source, words) => {
  expect(timeLimitWords({ seconds, source })).toBe(words);
});
