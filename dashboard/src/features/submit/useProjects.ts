/** Projects that take jobs of the caller, and the one with which a new job begins. */
import { useQuery } from "@tanstack/react-query";
import { useCaller } from "@/api/caller";
import { type JobView, listJobs, listProjects, type ProjectView } from "@/api/generated";
import { type Rights, useRights } from "@/api/rights";

export interface Projects {
  /** Empty for a person alone, who makes a project by naming it. */
  names: readonly string[];
  first: string | null;
}

const NONE: Projects = { names: [], first: null };

/** Undefined until the service has answered. Without an answer about them, the service itself chooses the project. */
export function useProjects(): Projects | undefined {
  const { data: caller, error } = useCaller();
  const rights = useRights();
  const isTeam = caller?.is_alone === false;
  const owner = caller?.name;
  const found = useQuery({
    queryKey: ["people", "projects to submit to", owner],
    queryFn: async ({ signal }) => {
      const [projects, jobs] = await Promise.all([
        listProjects({ signal, throwOnError: true }),
        listJobs({ query: { owner, limit: 1 }, signal, throwOnError: true }),
      ]);
      return { projects: projects.data.items, newest: jobs.data.items[0] };
    },
    enabled: isTeam,
  });
  if (!isTeam) return caller === undefined && error === null ? undefined : NONE;
  if (found.data === undefined) return found.error === null ? undefined : NONE;
  return choose(found.data.projects, found.data.newest, rights);
}

/** The project of the newest own job, else the first by name. */
export function choose(
  projects: readonly Pick<ProjectView, "name" | "archived_at">[],
  newest: Pick<JobView, "project"> | undefined,
  rights: Pick<Rights, "has">,
): Projects {
  const names = projects
    .filter(({ name, archived_at }) => archived_at === null && rights.has("job.submit", name))
    .map(({ name }) => name);
  const last = names.find((name) => name === newest?.project);
  return { names, first: last ?? names[0] ?? null };
}
