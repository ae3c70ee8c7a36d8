/** A folder or an archive on its way to the service: packed, hashed, sent unless it is there already. */
import { Failure } from "@/api/client";
import { getUpload, putUpload, type UploadView } from "@/api/generated";
import { bytes, number } from "@/lib/format";
import { type Chosen, choose, ignoreFileOf, LIMITS, NotSent, tooLarge } from "./choose";
import { END, header, padding } from "./tar";

type Say = (words: string) => void;

export async function sendFolder(files: readonly File[], say: Say): Promise<UploadView> {
  checkDigests();
  say("Looking at the folder");
  const chosen = choose(files, (await ignoreFileOf(files)?.text()) ?? "");
  const archive = await pack(chosen, say);
  if (archive.size > LIMITS.bytes_max) {
    throw tooLarge(`${chosen.folder}, compressed,`, archive.size, LIMITS.bytes_max, chosen.files);
  }
  return send(archive, say);
}

export async function sendArchive(file: File, say: Say): Promise<UploadView> {
  checkDigests();
  if (file.size > LIMITS.bytes_max) throw tooLarge(file.name, file.size, LIMITS.bytes_max, []);
  return send(file, say);
}

async function pack({ files, bytes: total }: Chosen<File>, say: Say): Promise<Blob> {
  const parts: BlobPart[] = [];
  for (const { name, file } of files)
    parts.push(header(name, file.size, await isProgram(file)), file, padding(file.size));
  let done = 0;
  const counted = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
    transform(chunk, controller) {
      done += chunk.length;
      say(`Packing ${number(files.length)} files: ${bytes(Math.min(done, total))} of ${bytes(total)}`);
      controller.enqueue(chunk);
    },
  });
  const packed = new Blob([...parts, END]).stream().pipeThrough(counted).pipeThrough(new CompressionStream("gzip"));
  return new Response(packed).blob();
}

async function send(archive: Blob, say: Say): Promise<UploadView> {
  say(`Computing the digest of ${bytes(archive.size)}`);
  const digest = await crypto.subtle.digest("SHA-256", await archive.arrayBuffer());
  const sha256 = Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const there = await find(sha256);
  if (there !== null) return there;
  say(`Sending ${bytes(archive.size)}`);
  return (await putUpload({ path: { sha256 }, body: archive, throwOnError: true })).data;
}

/** What the service has under this digest. */
async function find(sha256: string): Promise<UploadView | null> {
  try {
    return (await getUpload({ path: { sha256 }, throwOnError: true })).data;
  } catch (error) {
    if (error instanceof Failure && error.status === 404) return null;
    throw error;
  }
}

/** Browsers do not say which files may be run; those that name their interpreter are meant to be. */
async function isProgram(file: File): Promise<boolean> {
  return (await file.slice(0, 2).text()) === "#!";
}

function checkDigests(): void {
  if (window.isSecureContext) return;
  throw new NotSent(
    "This page came over plain http, where browsers compute no digests, and code is named by its digest.",
    "Open the page over https or on localhost, or use: lockstep submit FILE --code DIR",
  );
}
