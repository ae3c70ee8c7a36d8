/** The log of a job as a part of its page: what of it is shown is in the address. */
import { getRouteApi, useRouter } from "@tanstack/react-router";
import { useCallback } from "react";
import type { JobView } from "@/api/generated";
import { LogViewer } from "@/components/logs/LogViewer";
import type { LogView } from "@/lib/log-view";
import { readLook } from "@/lib/look";
import classes from "./JobPage.module.css";
import { ranksOf } from "./ranks";
import type { JobTab } from "./tab";

const route = getRouteApi("/jobs/$job");

export function LogsTab({ job, reference, view }: { job: JobView; reference: string; view: JobTab }) {
  const router = useRouter();
  const navigate = route.useNavigate();
  const onView = useCallback(
    (next: LogView) =>
      void navigate({
        search: (before) => ({ ...defined(next), tab: "logs", ...readLook({ ...before }) }),
        replace: true,
        resetScroll: false,
      }),
    [navigate],
  );
  const hrefOf = useCallback(
    (next: LogView) =>
      router.buildLocation({
        to: "/jobs/$job",
        params: { job: reference },
        search: { ...defined(next), tab: "logs" },
      }).href,
    [router, reference],
  );
  return (
    <section aria-labelledby="logs-title">
      <h2 id="logs-title" className={classes.unseen}>
        Logs
      </h2>
      <LogViewer
        jobId={job.id}
        jobName={job.name}
        attempts={job.attempt?.number ?? 1}
        ranks={ranksOf(job)}
        view={view}
        onView={onView}
        hrefOf={hrefOf}
      />
    </section>
  );
}

/** Without what is not chosen, and without what is no part of a log's view. */
function defined({ attempt, rank, stream, search, line }: LogView): LogView {
  const view = { attempt, rank, stream, search, line };
  return Object.fromEntries(Object.entries(view).filter(([, value]) => value !== undefined));
}
