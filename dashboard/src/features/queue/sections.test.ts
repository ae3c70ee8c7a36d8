import { expect, it } from "vitest";
import { aJob, aShare } from "@/testing/jobs";
import { barOf, causesOf, placesOf, sectionsOf, tenths } from "./sections";

const job = (position: number, project: string, reason = "waits for a free device") =>
  aJob({ id: `${position}`, project, state: "queued", queue: { position, reason } });
const places = (jobs: readonly { id: string }[]) => jobs.map(({ id }) => id);

it("has a section for each project with a job that waits, and for those that have devices", () => {
  const shares = [aShare({ project: "nlp" }), aShare({ project: "idle", in_use: 0 }), aShare({ project: "busy" })];
  const jobs = [job(1, "vision"), job(2, "nlp"), job(3, "vision")];
  const found = (isWhole: boolean) =>
    sectionsOf(jobs, shares, isWhole).map((one) => [one.project, ...places(one.jobs)]);
  expect(found(true)).toEqual([["busy"], ["nlp", "2"], ["vision", "1", "3"]]);
  expect(found(false)).toEqual([
    ["nlp", "2"],
    ["vision", "1", "3"],
  ]);
  expect(sectionsOf(jobs, shares, true).map(({ share }) => share?.project)).toEqual(["busy", "nlp", undefined]);
});

it("has each reason once, at the place of its first job, and loses no job", () => {
  const jobs = [job(2, "a", "x"), job(3, "a", "y"), job(7, "a", "x"), aJob({ id: "new", reason: "y" })];
  const causes = causesOf(jobs);
  expect(causes.map(({ reason, jobs }) => [reason, ...places(jobs)])).toEqual([
    ["x", "2", "7"],
    ["y", "3", "new"],
  ]);
  expect(causes.map(({ jobs }) => placesOf(jobs))).toEqual(["2–7", "3"]);
  expect(placesOf([aJob()])).toBe("–");
});

it("writes parts of devices in tenths", () => {
  expect([5.333, 8, 0.04].map(tenths)).toEqual(["5.3", "8", "0"]);
});

it("fills the bar to the larger of both", () => {
  expect(barOf({ in_use: 4, entitled: 8 })).toEqual({ used: 50, entitled: 100 });
  expect(barOf({ in_use: 8, entitled: 2 })).toEqual({ used: 100, entitled: 25 });
  expect(barOf({ in_use: 0, entitled: 0 })).toBeNull();
  expect(barOf({ in_use: 1, entitled: null })).toBeNull();
});
