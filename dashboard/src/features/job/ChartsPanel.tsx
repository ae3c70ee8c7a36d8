/** A job's curves. A chunk of its own: what is said about the job is there before what draws. */
import { lazy, Suspense } from "react";
import type { JobView } from "@/api/generated";

const Charts = lazy(async () => ({ default: (await import("@/components/charts/Charts")).Charts }));

export function ChartsPanel({ job }: { job: Pick<JobView, "id" | "name" | "state"> }) {
  return (
    <Suspense fallback={null}>
      <Charts jobs={[job]} />
    </Suspense>
  );
}
