/** Which files of a chosen folder are sent, or why none of them can be: decided before anything is read or sent. */
import { bytes, number } from "@/lib/format";
import server from "../server.json";
import { IGNORE_FILES, taken } from "./ignore";

export const LIMITS = server.upload;

/** As much of a browser's File as is needed to choose. */
export interface Listed {
  size: number;
  /** `folder/sub/file.py`, with the chosen folder's own name first. */
  webkitRelativePath: string;
}

export interface Chosen<F> {
  folder: string;
  /** Sorted by name; names are relative to the folder. */
  files: { name: string; file: F }[];
  bytes: number;
}

/** Why a folder or an archive is not sent, and what to do. */
export class NotSent extends Error {
  constructor(
    message: string,
    readonly nextStep: string,
  ) {
    super(message);
  }
}

const BIGGEST_NAMED = 5;

/** The ignore file at the folder's top, if there is one. */
export function ignoreFileOf<F extends Listed>(files: readonly F[]): F | undefined {
  return IGNORE_FILES.map((name) => files.find((file) => nameIn(file) === name)).find((file) => file !== undefined);
}

export function choose<F extends Listed>(files: readonly F[], patterns: string): Chosen<F> {
  const byName = new Map(files.map((file) => [nameIn(file), file]));
  const chosen = taken([...byName.keys()], patterns).map((name) => ({ name, file: byName.get(name) as F }));
  const folder = files[0]?.webkitRelativePath.split("/")[0] ?? "the folder";
  if (chosen.length === 0) throw new NotSent(`${folder} has no files to send.`, "Check its .lockstepignore.");
  const total = chosen.reduce((sum, { file }) => sum + file.size, 0);
  if (chosen.length > LIMITS.files_max) {
    throw new NotSent(
      `${folder} has ${number(chosen.length)} files; at most ${number(LIMITS.files_max)} are taken.`,
      "List files that the job does not need in .lockstepignore.",
    );
  }
  if (total > LIMITS.unpacked_bytes_max) throw tooLarge(folder, total, LIMITS.unpacked_bytes_max, chosen);
  return { folder, files: chosen, bytes: total };
}

/** `what` has more bytes than are taken; the biggest files are named. */
export function tooLarge(
  what: string,
  size: number,
  most: number,
  files: readonly { name: string; file: { size: number } }[],
): NotSent {
  const biggest = [...files].sort((one, other) => other.file.size - one.file.size).slice(0, BIGGEST_NAMED);
  const named = biggest.map(({ name, file }) => `${name} (${bytes(file.size)})`).join(", ");
  return new NotSent(
    `${what} has ${bytes(size)}; at most ${bytes(most)} is taken.${named === "" ? "" : ` The biggest files: ${named}.`}`,
    "List files that the job does not need in .lockstepignore; keep data on the nodes.",
  );
}

function nameIn({ webkitRelativePath }: Listed): string {
  return webkitRelativePath.slice(webkitRelativePath.indexOf("/") + 1);
}
