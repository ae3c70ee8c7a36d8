/** A new job, or a clone of one: from where its text starts. The work itself is in `Workbench`. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { getJob, type JobView } from "@/api/generated";
import { Failed } from "@/components/Failed";
import { TEMPLATES } from "./templates";
import { setAt } from "./text/edit";
import { readText } from "./text/read";
import { specText } from "./text/spec";
import type { Original } from "./useSubmission";
import { Workbench } from "./Workbench";
import classes from "./Workbench.module.css";

const route = getRouteApi("/submit");

export function SubmitPage() {
  const { clone, from } = route.useSearch();
  if (clone === undefined) return <Workbench key="new" id="new" initial={TEMPLATES[0]?.text ?? ""} original={null} />;
  return <Clone key={`${clone} ${from}`} reference={clone} from={from} />;
}

function Clone({ reference, from }: { reference: string; from: string | undefined }) {
  const { data, error, refetch } = useQuery({
    queryKey: ["job", reference],
    queryFn: async ({ signal }) => (await getJob({ path: { reference }, signal, throwOnError: true })).data,
  });
  if (data !== undefined) return <CloneOf job={data} from={from} />;
  return (
    <>
      <h1 className={classes.title}>Clone</h1>
      {error === null ? null : <Failed error={error} retry={() => void refetch()} />}
    </>
  );
}

function CloneOf({ job, from }: { job: JobView; from: string | undefined }) {
  const original = useMemo<Original>(() => ({ job, text: readText(specText(job.spec)) }), [job]);
  const { text } = original.text;
  const initial = from === undefined ? text : setAt(text, ["train", "init_from"], checkpointOf(job.id, from));
  return <Workbench id={`${job.id}.${from ?? ""}`} initial={initial} original={original} />;
}

/** As `train.init_from` says it. */
function checkpointOf(job: string, which: string): string {
  return which === "newest" ? `job:${job}` : `job:${job}@${which}`;
}
