/**
 * A tar archive, file by file: the headers and paddings between the files' own bytes (POSIX pax, IEEE 1003.1 "pax").
 *
 * Times, owners and order do not depend on the machine, so an unchanged folder is an unchanged archive in one browser.
 */
const BLOCK = 512;
const NAME_BYTES_MAX = 100;
const text = new TextEncoder();

/** What follows the last file. */
export const END = new Uint8Array(2 * BLOCK);

/** What goes before a file's bytes. */
export function header(name: string, size: number, isExecutable: boolean): Uint8Array<ArrayBuffer> {
  const mode = isExecutable ? 0o755 : 0o644;
  const bytes = text.encode(name);
  if (bytes.length <= NAME_BYTES_MAX && bytes.every((byte) => byte < 128)) return block(bytes, size, mode, "0");
  // A name that the plain header has no room or no words for is said in a record of its own before it.
  const record = paxRecord("path", name);
  const plain = bytes.slice(0, NAME_BYTES_MAX).map((byte) => (byte < 128 ? byte : 63));
  return joined([
    block(text.encode("PaxHeader"), record.length, 0o644, "x"),
    record,
    padding(record.length),
    block(plain, size, mode, "0"),
  ]);
}

/** What fills a file's last block. */
export function padding(size: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
}

function block(name: Uint8Array, size: number, mode: number, kind: string): Uint8Array<ArrayBuffer> {
  const made = new Uint8Array(BLOCK);
  const put = (at: number, words: string) => made.set(text.encode(words), at);
  made.set(name, 0);
  put(100, octal(mode, 8));
  put(108, octal(0, 8)); // owner
  put(116, octal(0, 8)); // group
  put(124, octal(size, 12));
  put(136, octal(0, 12)); // time
  put(148, " ".repeat(8)); // the checksum counts itself as spaces
  put(156, kind);
  put(257, "ustar\u000000");
  put(
    148,
    `${made
      .reduce((sum, byte) => sum + byte, 0)
      .toString(8)
      .padStart(6, "0")}\0 `,
  );
  return made;
}

function octal(value: number, width: number): string {
  return `${value.toString(8).padStart(width - 1, "0")}\0`;
}

/** `LENGTH key=value\n`, where the length counts its own digits too. */
function paxRecord(key: string, value: string): Uint8Array<ArrayBuffer> {
  const rest = text.encode(` ${key}=${value}\n`);
  let length = rest.length;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return joined([text.encode(String(length)), rest]);
}

function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
