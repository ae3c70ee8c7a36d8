import { expect, it, vi } from "vitest";
import { waitParts } from "./waiting";

const ID = "01a201d6-041d-7787-80c4-00a52f02a2d6";

it("names the job that is waited for, and leaves the other words as they are", () => {
  const parts = waitParts(`behind job ${ID}, which needs the same devices`, () => "wide-sweep");
  expect(parts).toEqual(["behind job ", { job: ID, name: "wide-sweep" }, ", which needs the same devices"]);
});

it("shows the end of the id where the name is not known", () => {
  expect(waitParts(`behind job ${ID}`, () => undefined)).toEqual(["behind job ", { job: ID, name: "…02a2d6" }]);
});

it("loses no word, whatever the reason is", () => {
  for (const reason of ["", "tries again in 3 s after a failure", `${ID} is no job here`, `job ${ID} and job ${ID}.`]) {
    const parts = waitParts(reason, () => undefined);
    expect(parts.map((part) => (typeof part === "string" ? part : part.job)).join("")).toBe(reason);
  }
});

it("shows a time in the zone of the reader", () => {
  vi.stubEnv("TZ", "Asia/Kolkata");
  const parts = waitParts("holds a, and starts there about 2026-11-26 20:00 UTC", () => undefined);
  vi.unstubAllEnvs();
  expect(parts).toEqual(["holds a, and starts there about 2026-11-27 01:30 UTC+5:30"]);
});
