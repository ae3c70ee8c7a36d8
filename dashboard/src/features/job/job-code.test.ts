import { expect, it } from "vitest";
import { codeOf, isCommit } from "./job-code";

it.each([
  [{}, null],
  [{ code: null }, null],
  [{ code: { git: "https://example.org/a.git" } }, { kind: "git", url: "https://example.org/a.git", ref: "HEAD" }],
  [{ code: { git: "ssh://a", ref: "main" } }, { kind: "git", url: "ssh://a", ref: "main" }],
  [{ code: { upload: "ab12" } }, { kind: "upload", sha256: "ab12" }],
  [{ code: { path: "/data/code" } }, { kind: "path", path: "/data/code" }],
  [{ code: { path: 3 } }, null],
])("%j: %j", (spec, code) => {
  expect(codeOf(spec)).toEqual(code);
});

it("tells a commit from a branch that only looks like one", () => {
  const sha1 = "3f".repeat(20);
  expect([sha1, "3f".repeat(32)].map(isCommit)).toEqual([true, true]);
  expect(["main", sha1.slice(1), `${sha1}0`, sha1.toUpperCase(), "3f2a"].map(isCommit)).toEqual(Array(5).fill(false));
});
