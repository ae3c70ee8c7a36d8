/** A job's curves, with what happened to it below them. A chunk of its own: what is said about the job is there first. */
import { getRouteApi } from "@tanstack/react-router";
import { lazy, type ReactNode, Suspense, useMemo } from "react";
import type { JobView } from "@/api/generated";
import { readLook } from "@/lib/look";
import { marksOf } from "@/lib/marks";
import { useJobEvents } from "./job-queries";

const LookedAt = lazy(async () => ({ default: (await import("@/components/charts/LookedAt")).LookedAt }));
const route = getRouteApi("/jobs/$job");

interface ChartsPanelProps {
  job: JobView;
  /** The place of the charts' controls, once it is there. */
  controls: HTMLElement | null;
  /** What follows the charts. */
  below: ReactNode;
}

export function ChartsPanel({ job, controls, below }: ChartsPanelProps) {
  const view = route.useSearch();
  const { job: reference } = route.useParams();
  const navigate = route.useNavigate();
  const { events = [] } = useJobEvents(job);
  // By both ends: events are added there, never changed, and a new list on each poll would draw all charts again.
  // biome-ignore lint/correctness/useExhaustiveDependencies: see above
  const marks = useMemo(() => marksOf(events), [job.id, events[0]?.id, events.at(-1)?.id]);
  return (
    <Suspense fallback={null}>
      <LookedAt
        address={readLook({ ...view })}
        onLook={(look) =>
          void navigate({ search: (before) => ({ ...before, ...look }), replace: true, resetScroll: false })
        }
        jobs={[{ ...job, followedAs: reference }]}
        marks={marks}
        controls={controls}
        below={below}
      />
    </Suspense>
  );
}
