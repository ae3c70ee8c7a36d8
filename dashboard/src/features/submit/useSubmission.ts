/**
 * Submitting the text: as a new job, or as a clone.
 *
 * A clone goes through the API's own clone with the values that changed (`text/changes.ts`), not as a new job: only so it
 * keeps the commit that the other job's git ref was and the job that its weights came from, and says in its history where
 * it comes from. An uploaded archive is the same one either way.
 */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Failure } from "@/api/client";
import { type CloneJobData, cloneJob, type JobSpec, type JobView, planJob, submitJob } from "@/api/generated";
import { forgetKey, keyFor } from "./idempotency";
import { jsonBody } from "./plan/usePlan";
import { cloneBody } from "./text/changes";
import type { SpecText } from "./text/read";

export interface Original {
  job: JobView;
  text: SpecText;
}

interface Sent {
  spec: SpecText;
  original: Original | null;
}

export function useSubmission(onMade: () => void) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  return useMutation({
    mutationFn: async (sent: Sent) => (await send(sent)).data,
    onSuccess: async (job) => {
      forgetKey();
      onMade();
      for (const key of ["jobs", "queue", "nodes"]) void queries.invalidateQueries({ queryKey: [key] });
      await navigate({ to: "/jobs/$job", params: { job: job.id } });
    },
  });
}

async function send({ spec, original }: Sent) {
  if (original === null) {
    const headers = { "idempotency-key": keyFor(spec.json) };
    return submitJob({ ...jsonBody<JobSpec>(spec.json), headers, throwOnError: true });
  }
  const changes = cloneBody(original.text, spec, await fullOf(spec));
  return cloneJob({
    ...jsonBody<CloneJobData["body"]>(changes),
    path: { reference: original.job.id },
    headers: { "idempotency-key": keyFor(`${original.job.id} ${changes}`) },
    throwOnError: true,
  });
}

/** The document with every default, which says what leaving a field out means: of this text, not of the last one planned. */
async function fullOf(spec: SpecText): Promise<unknown> {
  try {
    return (await planJob({ ...jsonBody<JobSpec>(spec.json), throwOnError: true })).data.spec;
  } catch (error) {
    // The clone itself says what is wrong; and it may know what a plan cannot look up any more, such as a branch that is gone.
    if (error instanceof Failure && !error.mayPass) return null;
    throw error;
  }
}
