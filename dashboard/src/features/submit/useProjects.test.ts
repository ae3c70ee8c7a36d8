import { expect, it } from "vitest";
import { choose } from "./useProjects";

const projects = ["default", "nlp", "old", "vision"].map((name) => ({
  name,
  archived_at: name === "old" ? "2026-01-01T00:00:00Z" : null,
}));
const may = (...names: string[]) => ({ has: (_: string, project?: string) => names.includes(project ?? "") });

it("offers the projects that take jobs of the caller, and begins with that of the newest job", () => {
  const own = may("nlp", "old", "vision");
  expect(choose(projects, undefined, own)).toEqual({ names: ["nlp", "vision"], first: "nlp" });
  expect(choose(projects, { project: "vision" }, own).first).toBe("vision");
  expect(choose(projects, { project: "old" }, own).first).toBe("nlp");
  expect(choose(projects, undefined, may())).toEqual({ names: [], first: null });
});
