/** One key for one body, so that a click that is repeated, also after a reload, is answered with the job of the first. */

const KEY = "lockstep.submit.key";

export function keyFor(body: string): string {
  const kept = read();
  if (kept?.body === body) return kept.key;
  const key = newKey();
  sessionStorage.setItem(KEY, JSON.stringify({ body, key }));
  return key;
}

/** After a job was made: the same text submitted on purpose is another job. */
export function forgetKey(): void {
  sessionStorage.removeItem(KEY);
}

function read(): { body: string; key: string } | null {
  const kept = sessionStorage.getItem(KEY);
  return kept === null ? null : (JSON.parse(kept) as { body: string; key: string });
}

/** 128 random bits. `crypto.randomUUID` is missing where the page came over plain http. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `page-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
