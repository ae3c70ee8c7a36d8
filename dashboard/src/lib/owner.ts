/** Who submitted a job; null where the service did not store it. */
import type { CallerView, JobView } from "@/api/generated";

export function ownerOf({ owner }: Pick<JobView, "owner">): string | null {
  return owner === undefined || owner === "" ? null : owner;
}

/** The owner of the jobs that a list begins with: the caller in a team, unless a viewer, who has none. */
export function ownerToStartWith({ name, role, projects, is_alone }: CallerView): string | null {
  const submits = role === "admin" || Object.values(projects).some((each) => each !== "viewer");
  return submits && !is_alone ? name : null;
}
