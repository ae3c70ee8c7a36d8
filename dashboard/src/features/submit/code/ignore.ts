/**
 * What of a code folder stays behind, by the rules of the command line (`lockstep submit --code`): version control, caches
 * and environments, and what `.lockstepignore` (or, where there is none, `.gitignore`) at its top names, in git's patterns.
 */
import ignore from "ignore";
import server from "../server.json";

export const IGNORE_FILES: readonly string[] = server.upload.ignore_files;
const ALWAYS_LEFT_OUT = new Set(server.upload.left_out);

/** Which of `paths` (relative, with `/`) go into the archive, sorted. `patterns`: the text of the ignore file. */
export function taken(paths: readonly string[], patterns: string): string[] {
  const rules = ignore({ ignorecase: false }).add(patterns);
  const isLeftOut = (path: string) =>
    path.split("/").some((name) => ALWAYS_LEFT_OUT.has(name)) || /\.py[co]$/.test(path) || rules.ignores(path);
  return paths.filter((path) => !isLeftOut(path)).sort(byCodePoints);
}

function byCodePoints(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}
