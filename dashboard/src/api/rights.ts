/** Rights of the caller, as the service lists them. Pages offer no control that the service would refuse. */
import { useCaller } from "./caller";
import type { CallerView, Right } from "./generated";

export interface Rights {
  /** In this project; without one, in the service or in at least one project. */
  has: (right: Right, project?: string) => boolean;
  /** True if the caller may stop a job: a member only the own ones. */
  controls: (job: { project: string; owner?: string }) => boolean;
  /** True if the caller may delete a job and change its marks: a member only the own ones. */
  writes: (job: { project: string; owner?: string }) => boolean;
}

/** None until the service has answered. */
export function useRights(): Rights {
  return rightsOf(useCaller().data);
}

export function rightsOf(caller: CallerView | undefined): Rights {
  const has = (right: Right, project?: string) => {
    if (caller === undefined) return false;
    if (project === undefined) return caller.rights.includes(right);
    return caller.rights_everywhere.includes(right) || (caller.rights_in[project] ?? []).includes(right);
  };
  const hasForJob =
    (right: Right) =>
    ({ project, owner }: { project: string; owner?: string }) =>
      has(right, project) || (owner === caller?.name && has("job.control_own", project));
  return { has, controls: hasForJob("job.control"), writes: hasForJob("job.write") };
}
