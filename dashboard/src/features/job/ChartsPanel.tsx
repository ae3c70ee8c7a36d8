/** The seam to the charts: everything else of this page knows only that there are some. */
import type { JobView } from "@/api/generated";
import { Empty } from "@/components/Empty";

export function ChartsPanel({ job }: { job: Pick<JobView, "id" | "name" | "state"> }) {
  return (
    <Empty title="No curves here" command={`lockstep metrics ${job.id.slice(-8)}`}>
      <p>The numbers of this job are told by the command line.</p>
    </Empty>
  );
}
