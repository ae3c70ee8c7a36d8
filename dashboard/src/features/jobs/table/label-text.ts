/** Labels as text, as forms have it. Pure; the tests are beside it. */
import { labelWords } from "./words";

/** Labels as they are edited: one in a line, `key=value`. */
export function labelsText(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => labelWords(key, value))
    .join("\n");
}

/** Labels of a text, as `labelsText` writes them. */
export function labelsIn(text: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const line of text.split("\n")) {
    const [key = "", ...value] = line.split("=");
    if (key.trim() !== "") found.set(key.trim(), value.join("=").trim());
  }
  return found;
}

/** The change from `labels` to those of the text, as the service takes it: null removes one. */
export function labelChanges(labels: Readonly<Record<string, string>>, text: string): Record<string, string | null> {
  const wanted = labelsIn(text);
  const gone = Object.keys(labels).filter((key) => !wanted.has(key));
  const set = [...wanted].filter(([key, value]) => labels[key] !== value);
  return Object.fromEntries([...gone.map((key) => [key, null] as const), ...set]);
}
