/** Who submitted a job; null where the service did not store it. */
import type { JobView } from "@/api/generated";

export function ownerOf({ owner }: Pick<JobView, "owner">): string | null {
  return owner === undefined || owner === "" ? null : owner;
}
