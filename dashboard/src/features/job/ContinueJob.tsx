/** A new job that goes on where an ended one stopped. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { cloneJob, type JobView } from "@/api/generated";
import { Button } from "@/components/Button";
import { Failed } from "@/components/Failed";

/** For a job that failed or was cancelled, whose checkpoints the caller reads, and who may submit. */
export function ContinueJob({ job }: { job: JobView }) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const request = useMutation({
    mutationFn: async () =>
      (await cloneJob({ path: { reference: job.id }, body: { set: { "/continues": job.id } }, throwOnError: true }))
        .data,
    onSuccess: async (made) => {
      for (const key of ["jobs", "queue"]) void queries.invalidateQueries({ queryKey: [key] });
      await navigate({ to: "/jobs/$job", params: { job: made.id } });
    },
  });
  return (
    <>
      <Button
        size="sm"
        disabled={request.isPending}
        title="A new job that begins with this one's newest checkpoint and its files"
        onClick={() => request.mutate()}
      >
        Continue
      </Button>
      {request.error === null ? null : <Failed error={request.error} />}
    </>
  );
}
