/** Who submitted a job; null where the service knows nobody: it asks for no token, or did not write it down then. */
import type { JobView } from "@/api/generated";

/** The service's name for all who use it without a token. */
const ANYBODY = "anybody";

export function ownerOf({ owner }: Pick<JobView, "owner">): string | null {
  return owner === undefined || owner === "" || owner === ANYBODY ? null : owner;
}
