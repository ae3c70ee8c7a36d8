/**
 * What a clone changes, as the API takes it: a value for each JSON pointer into the other job's spec.
 *
 * A clone keeps what the other job's names meant when it was submitted: the commit of its git ref, the job its weights came
 * from. The texts say neither, so only what differs between them is sent. `code` is sent whole where any of it differs: the
 * commit of one repository means nothing in another. A field that is gone cannot be sent as gone: it is sent as the value
 * that leaving it out means, which the plan of the new text says, or else the object around it is sent whole.
 */
import { same } from "./edit";
import { pointerOf } from "./pointer";
import { jsonAt, type Path, type SpecText, valueAt } from "./read";

/** The body of a clone, digits as they were written. `full` is the new spec with every default, where a plan gave it. */
export function cloneBody(before: SpecText, after: SpecText, full: unknown): string {
  const set = changedPaths(before.value, after.value, full).map((path) => {
    const written = jsonAt(after, path) ?? JSON.stringify(valueAt(full, path) ?? null);
    return `${JSON.stringify(pointerOf(path))}:${written}`;
  });
  return `{"set":{${set.join(",")}}}`;
}

export function changedPaths(before: unknown, after: unknown, full: unknown, path: Path = []): Path[] {
  if (same(before, after)) return [];
  if (!isObject(before) || !isObject(after) || (path.length === 1 && path[0] === "code")) return [path];
  const gone = Object.keys(before).filter((name) => !Object.hasOwn(after, name));
  if (path.length > 0 && gone.some((name) => valueAt(full, [...path, name]) === undefined)) return [path];
  const there = Object.keys(after).flatMap((name) =>
    changedPaths(valueAt(before, [name]), after[name], full, [...path, name]),
  );
  return [...there, ...gone.map((name) => [...path, name])];
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
