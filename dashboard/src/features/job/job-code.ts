/** Where a job's own files come from, as its spec says it. Pure; the tests are beside it. */

export type Code =
  | { kind: "git"; url: string; ref: string }
  | { kind: "upload"; sha256: string }
  | { kind: "path"; path: string };

/** Null of a spec that brings no files. A submitted one may leave the ref out. */
export function codeOf(spec: Record<string, unknown>): Code | null {
  const { code } = spec;
  if (typeof code !== "object" || code === null) return null;
  const { git, ref, upload, path } = code as Record<string, unknown>;
  if (typeof git === "string") return { kind: "git", url: git, ref: typeof ref === "string" ? ref : "HEAD" };
  if (typeof upload === "string") return { kind: "upload", sha256: upload };
  return typeof path === "string" ? { kind: "path", path } : null;
}

/** What names one commit for ever, as git writes it; a branch or a tag does not. */
export function isCommit(ref: string): boolean {
  return /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/.test(ref);
}
