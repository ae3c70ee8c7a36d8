/** Pause of a job, and its return to the queue. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type JobView, pauseJob, resumeJob } from "@/api/generated";
import { Button } from "@/components/Button";
import { Failed } from "@/components/Failed";

/** For a job that has not ended and that the caller controls. */
export function PauseJob({ job }: { job: JobView }) {
  const queries = useQueryClient();
  const resumes = job.state === "paused" || job.intent === "pause";
  const request = useMutation({
    mutationFn: () => (resumes ? resumeJob : pauseJob)({ path: { reference: job.id }, throwOnError: true }),
    onSuccess: () =>
      Promise.all(["job", "jobs", "queue"].map((name) => queries.invalidateQueries({ queryKey: [name] }))),
  });
  if (job.intent === "cancel") return null;
  return (
    <>
      <Button
        size="sm"
        disabled={request.isPending}
        title={
          resumes
            ? "It goes back to the queue, with its age"
            : "It saves, stops, and gives its devices back until it is resumed"
        }
        onClick={() => request.mutate()}
      >
        {resumes ? "Resume" : "Pause"}
      </Button>
      {request.error === null ? null : <Failed error={request.error} />}
    </>
  );
}
