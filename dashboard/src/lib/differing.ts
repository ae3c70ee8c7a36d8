/** What differs between documents: their values by path, without the paths on which all agree. */

export interface Difference {
  path: string;
  /** One per document; undefined where it has nothing there. */
  values: (string | undefined)[];
}

/** `{a: {b: [1]}}` as `a.b → [1]`: lists are one value, because their places mean nothing across documents. */
export function flattened(document: unknown, path = "", into = new Map<string, string>()): Map<string, string> {
  if (typeof document === "object" && document !== null && !Array.isArray(document)) {
    const entries = Object.entries(document);
    if (entries.length === 0 && path !== "") into.set(path, "{}");
    for (const [key, value] of entries) flattened(value, path === "" ? key : `${path}.${key}`, into);
  } else if (path !== "") into.set(path, typeof document === "string" ? document : JSON.stringify(document));
  return into;
}

/** In the order in which the documents first mention the paths. */
export function differing(documents: readonly unknown[]): Difference[] {
  const flat = documents.map((document) => flattened(document));
  const paths = new Set(flat.flatMap((values) => [...values.keys()]));
  return [...paths]
    .map((path) => ({ path, values: flat.map((values) => values.get(path)) }))
    .filter(({ values }) => values.some((value) => value !== values[0]));
}
