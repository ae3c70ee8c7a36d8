/** Project of the lists, as the address keeps it. Only for a person who reads several. */
import { useQuery } from "@tanstack/react-query";
import { useMatches, useNavigate, useSearch } from "@tanstack/react-router";
import { listProjects } from "@/api/generated";
import { useToken } from "@/api/token";
import { Select } from "@/components/Select";
import classes from "./Shell.module.css";

/** Projects come and go by the day. */
const FRESH_MS = 60_000;

export function ProjectFilter() {
  const isByProject = useMatches().at(-1)?.staticData.page?.isByProject === true;
  return isByProject ? <Choice /> : null;
}

function Choice() {
  const { project = "" } = useSearch({ strict: false });
  const navigate = useNavigate();
  const token = useToken();
  const { data } = useQuery({
    queryKey: ["people", "project names", token],
    queryFn: async ({ signal }) => (await listProjects({ signal, throwOnError: true })).data.items,
    staleTime: FRESH_MS,
  });
  const options = choicesOf(data ?? [], project);
  if (options.length < 3 && project === "") return null;
  return (
    <Select
      size="sm"
      className={classes.project}
      aria-label="Project"
      value={project}
      onChange={({ target }) =>
        void navigate({
          to: ".",
          search: (former) => ({ ...former, project: target.value || undefined, cursor: undefined }),
        })
      }
    >
      {options.map(({ value, label }) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </Select>
  );
}

/** The choices, with the present one: an address may name a pattern, or a project that one may not read. */
export function choicesOf(projects: readonly { name: string; archived_at: string | null }[], present: string) {
  const found = projects.map(({ name, archived_at }) => ({
    value: name,
    label: archived_at === null ? name : `${name} (archived)`,
  }));
  const isListed = present === "" || projects.some(({ name }) => name === present);
  return [{ value: "", label: "All projects" }, ...found, ...(isListed ? [] : [{ value: present, label: present }])];
}
