import { expect, it } from "vitest";
import type { CallerView, Right } from "./generated";
import { rightsOf } from "./rights";

const member: readonly Right[] = ["job.read", "job.submit", "job.control_own"];
const lea = {
  name: "lea",
  rights: [...member, "node.read"],
  rights_everywhere: [] as Right[],
  rights_in: { nlp: member, vision: ["job.read"] },
} as unknown as CallerView;

it("has a right in the project that gives it, and in each with one that holds everywhere", () => {
  const { has } = rightsOf(lea);
  expect([has("job.submit"), has("job.submit", "nlp"), has("job.submit", "vision")]).toEqual([true, true, false]);
  expect([has("node.read"), has("user.write"), has("job.read", "unknown")]).toEqual([true, false, false]);
  expect(rightsOf({ ...lea, rights_everywhere: ["job.read"] }).has("job.read", "unknown")).toBe(true);
  expect(rightsOf(undefined).has("job.read")).toBe(false);
});

it("controls the own jobs of a member, and each job of an admin", () => {
  const jobs = ["nlp", "vision"].flatMap((project) => ["lea", "ben"].map((owner) => ({ project, owner })));
  expect(jobs.map(rightsOf(lea).controls)).toEqual([true, false, false, false]);
  const admin = rightsOf({ ...lea, rights_in: { ...lea.rights_in, vision: ["job.control"] } });
  expect(jobs.map(admin.controls)).toEqual([true, false, true, true]);
  expect(jobs.map(admin.writes)).toEqual([true, false, false, false]);
});
