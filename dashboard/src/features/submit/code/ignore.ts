/**
 * What of a code folder stays behind, by the rules of the command line (`lockstep submit --code`): version control, caches
 * and environments, and what `.lockstepignore` (or, where there is none, `.gitignore`) at its top names. Of git's patterns
 * the common ones are understood; as in git, the last matching line decides.
 */
import server from "../server.json";

export const IGNORE_FILES: readonly string[] = server.upload.ignore_files;
const ALWAYS_LEFT_OUT = new Set(server.upload.left_out);

type Ignore = (path: string, isFolder: boolean) => boolean;

/** Which of `paths` (relative, with `/`) go into the archive, sorted. `patterns`: the text of the ignore file. */
export function taken(paths: readonly string[], patterns: string): string[] {
  const ignore = readIgnore(patterns);
  const folders = new Map<string, boolean>();
  const leavesOutFolder = (path: string): boolean => {
    const known = folders.get(path);
    if (known !== undefined) return known;
    const [around, name] = split(path);
    const isOut = (around !== "" && leavesOutFolder(around)) || ALWAYS_LEFT_OUT.has(name) || ignore(path, true);
    folders.set(path, isOut);
    return isOut;
  };
  return paths
    .filter((path) => {
      const [around, name] = split(path);
      if (around !== "" && leavesOutFolder(around)) return false;
      return !ALWAYS_LEFT_OUT.has(name) && !/\.py[co]$/.test(name) && !ignore(path, false);
    })
    .sort(byCodePoints);
}

export function readIgnore(text: string): Ignore {
  const rules = text
    .split(/\r?\n/)
    .map((line) => line.trimEnd())
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => {
      const isKept = line.startsWith("!");
      const pattern = isKept ? line.slice(1) : line;
      return { isKept, foldersOnly: pattern.endsWith("/"), matches: regexOf(pattern.replace(/\/+$/, "")) };
    });
  return (path, isFolder) =>
    rules.reduce(
      (isOut, { isKept, foldersOnly, matches }) => ((isFolder || !foldersOnly) && matches.test(path) ? !isKept : isOut),
      false,
    );
}

/** A git pattern as a regular expression over the whole relative path. */
function regexOf(line: string): RegExp {
  const parts = line.replace(/^\/+/, "").split("/");
  const whole = parts.map((part, index) => {
    const isLast = index === parts.length - 1;
    if (part === "**") return isLast ? ".*" : "(?:.*/)?";
    const name = part.replace(/[.*+?^${}()|[\]\\]/g, (sign) =>
      sign === "*" ? "[^/]*" : sign === "?" ? "[^/]" : `\\${sign}`,
    );
    return isLast ? name : `${name}/`;
  });
  return new RegExp(`^${line.includes("/") ? "" : "(?:.*/)?"}${whole.join("")}$`, "su");
}

function split(path: string): [string, string] {
  const at = path.lastIndexOf("/");
  return [path.slice(0, Math.max(at, 0)), path.slice(at + 1)];
}

function byCodePoints(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}
