/** Addresses of pages: one reader of them for the router, and the parts of an address that no reader takes. */
import { listed } from "./listed";

type Raw = Record<string, unknown>;

/** Values that are the default, and that a view therefore leaves out. */
const USUAL: Readonly<Record<string, string>> = {
  sort: "-created",
  axis: "step",
  smoothing: "0",
  tab: "overview",
  state: "queued,starting,running,paused,succeeded,failed,cancelled",
};

/**
 * The reader `read` as the router needs it: every other key of the address is undefined.
 *
 * The router merges the result over the raw address, so that a wrong value that is only left out stays in the view.
 */
export function only<View extends object>(read: (raw: Raw) => View): (raw: Raw) => View {
  return (raw) => ({ ...Object.fromEntries(Object.keys(raw).map((key) => [key, undefined])), ...read(raw) });
}

/** Each `key=value` of the address that is not part of the view. */
export function unread(raw: Raw, view: Raw): string[] {
  const taken = new Set(Object.values(view).flatMap(listed));
  return Object.entries(raw).flatMap(([key, value]) => {
    const parts = typeof value === "object" && !Array.isArray(value) ? [JSON.stringify(value)] : listed(value);
    // As many values as in the address: some may be written in another way, as `10.0` for 10.
    if (parts.length <= listed(view[key]).length || USUAL[key] === parts.join(",")) return [];
    return parts.filter((part) => !taken.has(part)).map((part) => `${key}=${part}`);
  });
}
