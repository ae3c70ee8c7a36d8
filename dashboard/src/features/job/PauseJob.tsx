/** Pause of a job, and its return to the queue. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type JobView, pauseJob, resumeJob } from "@/api/generated";
import { Failed } from "@/components/Failed";
import buttons from "./buttons.module.css";

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
      <button
        type="button"
        className={buttons.button}
        disabled={request.isPending}
        title={
          resumes
            ? "It goes back to the queue, with its age"
            : "It saves, stops, and gives its devices back until it is resumed"
        }
        onClick={() => request.mutate()}
      >
        {resumes ? "Resume" : "Pause"}
      </button>
      {request.error === null ? null : <Failed error={request.error} />}
    </>
  );
}
