/** A new job, or a clone of one: from where its text starts. The work itself is in `Workbench`. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { useCaller } from "@/api/caller";
import { getJob, type JobView } from "@/api/generated";
import { useRights } from "@/api/rights";
import { Empty } from "@/components/Empty";
import { Failed } from "@/components/Failed";
import { usePageTitle } from "@/components/usePageTitle";
import { templatesIn } from "./templates";
import { inProject, setAt } from "./text/edit";
import { readText } from "./text/read";
import { specText } from "./text/spec";
import { type Projects, useProjects } from "./useProjects";
import type { Original } from "./useSubmission";
import { Workbench } from "./Workbench";
import classes from "./Workbench.module.css";

const route = getRouteApi("/submit");

export function SubmitPage() {
  usePageTitle("New job");
  const { clone, from, template } = route.useSearch();
  const { data: caller } = useCaller();
  const submits = useRights().has("job.submit");
  const projects = useProjects();
  if (caller !== undefined && !submits) return <MayNotSubmit />;
  if (projects === undefined) return <h1 className={classes.title}>New job</h1>;
  if (clone !== undefined) {
    return <Clone key={`${clone} ${from}`} reference={clone} from={from} projects={projects} />;
  }
  const templates = templatesIn(projects.first);
  const first = templates.find(({ name }) => name === template) ?? templates[0];
  const id = template === undefined ? "new" : `template.${template}`;
  return <Workbench key={id} id={id} initial={first?.text ?? ""} templates={templates} original={null} />;
}

function MayNotSubmit() {
  return (
    <Empty title="You have no project that takes jobs" isPage>
      <p>A member of a project submits jobs there. Ask an admin of a project for this role.</p>
    </Empty>
  );
}

interface CloneProps {
  reference: string;
  from: string | undefined;
  projects: Projects;
}

function Clone({ reference, from, projects }: CloneProps) {
  const { data, error, refetch } = useQuery({
    queryKey: ["job", reference],
    queryFn: async ({ signal }) => (await getJob({ path: { reference }, signal, throwOnError: true })).data,
  });
  if (data !== undefined) return <CloneOf job={data} from={from} projects={projects} />;
  return (
    <>
      <h1 className={classes.title}>Clone</h1>
      {error === null ? null : <Failed error={error} retry={() => void refetch()} />}
    </>
  );
}

/** A clone stays in the project of its job, unless that takes no jobs of the caller. */
function CloneOf({ job, from, projects: { names, first } }: Omit<CloneProps, "reference"> & { job: JobView }) {
  const isTeam = first !== null;
  const original = useMemo<Original>(() => {
    const text = specText(job.spec);
    return { job, text: readText(isTeam ? inProject(text, job.project) : text) };
  }, [job, isTeam]);
  const { text } = original.text;
  const moved = isTeam && !names.includes(job.project) ? inProject(text, first) : text;
  const initial = from === undefined ? moved : setAt(moved, ["train", "init_from"], checkpointOf(job.id, from));
  return <Workbench id={`${job.id}.${from ?? ""}`} initial={initial} templates={[]} original={original} />;
}

/** As `train.init_from` says it. */
function checkpointOf(job: string, which: string): string {
  return which === "newest" ? `job:${job}` : `job:${job}@${which}`;
}
