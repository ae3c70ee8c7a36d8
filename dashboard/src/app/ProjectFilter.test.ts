import { expect, it } from "vitest";
import { choicesOf } from "./ProjectFilter";

it("offers each project, and what the address names beside them", () => {
  const projects = [
    { name: "nlp", archived_at: null },
    { name: "old", archived_at: "2026-01-01T00:00:00Z" },
  ];
  const labels = (present: string) => choicesOf(projects, present).map(({ label }) => label);
  expect(labels("")).toEqual(["All projects", "nlp", "old (archived)"]);
  expect(labels("nlp")).toEqual(labels(""));
  expect(labels("n*").at(-1)).toBe("n*");
});
