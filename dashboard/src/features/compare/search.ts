/** What is typed to find a job: its longest word is the service's to find, all of them are to be in the name. */
import type { JobView } from "@/api/generated";

export function wordsOf(typed: string): string[] {
  return typed
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
}

/** The service finds one part of a name; the longest leaves the least to look through here. */
export function asked(words: readonly string[]): string | undefined {
  return [...words].sort((a, b) => b.length - a.length)[0];
}

/** An id is written by its end, or pasted whole. */
export function hasAll({ id, name }: Pick<JobView, "id" | "name">, words: readonly string[]): boolean {
  const known = name.toLowerCase();
  return words.every((word) => known.includes(word) || id.startsWith(word) || id.endsWith(word));
}
