/** Kept files as the page shows them: patterns for the service, kinds of previews, text of bytes. */
import type { JobView } from "@/api/generated";
import { printable } from "@/lib/printable";

/** Rows that are added at a time: ten thousand at once would stop the page. */
export const ROWS = 200;
export const FILES_MAX = 10_000;
export const TEXT_BYTES_MAX = 64 * 1_024;
export const IMAGE_BYTES_MAX = 16 * 1_024 * 1_024;
/** A download that needs the token goes through the page's memory first. */
export const DOWNLOAD_BYTES_MAX = 256 * 1_024 * 1_024;

const IMAGES: Readonly<Record<string, string>> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  svg: "image/svg+xml",
};

/** What is typed as the service takes it: a pattern as in `.gitignore`, or else a part of a name. */
export function patternOf(typed: string): string {
  if (/[*?[]/.test(typed) || typed.endsWith("/")) return typed;
  return typed.includes("/") ? `${typed}*` : `*${typed}*`;
}

/** The pattern that selects this path alone. */
export function exactly(path: string): string {
  const escaped = path.replace(/[*?[]/g, "[$&]");
  return /^[^!#\\].*\//s.test(path) ? escaped : `/${escaped}`;
}

/** Type of an image that a browser shows; null for other files. */
export function imageType(path: string): string | null {
  return IMAGES[path.slice(path.lastIndexOf(".") + 1).toLowerCase()] ?? null;
}

/** The node of a live job would store a deleted file again. */
export function canDeleteFiles({ state }: JobView): boolean {
  return state !== "starting" && state !== "running";
}

/** The first bytes of a stream, of which no more is read. */
export async function startOf(stream: ReadableStream<Uint8Array> | null, most: number): Promise<Uint8Array> {
  const found = new Uint8Array(most);
  const reader = stream?.getReader();
  let length = 0;
  while (reader !== undefined && length < most) {
    const { value, done } = await reader.read();
    if (done) break;
    const part = value.subarray(0, most - length);
    found.set(part, length);
    length += part.length;
  }
  await reader?.cancel();
  return found.subarray(0, length);
}

/** Bytes as text; null if they are none. A letter that is cut at the end is left out. */
export function textOf(bytes: Uint8Array): string | null {
  if (bytes.includes(0)) return null;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
    return printable(text.replace(/\r\n?/g, "\n"), "\n\t");
  } catch {
    return null;
  }
}

/** A word of a shell's command. */
export function quoted(word: string): string {
  return /^[\w./-]+$/.test(word) ? word : `'${printable(word).replaceAll("'", `'\\''`)}'`;
}
