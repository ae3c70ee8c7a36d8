/** One job: what it is and how far it is, and below that the part that the address names. */
import { getRouteApi, Link, useRouter } from "@tanstack/react-router";
import { lazy, Suspense, useCallback } from "react";
import type { JobView } from "@/api/generated";
import { Clock } from "@/components/Clock";
import { Failed } from "@/components/Failed";
import { PageStale } from "@/components/Stale";
import { usePageIcon, usePageTitle } from "@/components/usePageTitle";
import type { LogView } from "@/lib/log-view";
import { readLook } from "@/lib/look";
import { CheckpointsTab } from "./CheckpointsTab";
import { ConfigurationTab } from "./ConfigurationTab";
import { FilesTab } from "./FilesTab";
import { JobHeader } from "./JobHeader";
import classes from "./JobPage.module.css";
import { useJob } from "./job-queries";
import { OverviewTab } from "./OverviewTab";
import { TimelineTab } from "./TimelineTab";
import { type JobTab, TABS } from "./tab";
import { jobTitle, TAB_NAMES } from "./title";

const LogViewer = lazy(async () => ({ default: (await import("@/components/logs/LogViewer")).LogViewer }));
const route = getRouteApi("/jobs/$job");

export function JobPage() {
  const { job: reference } = route.useParams();
  const view = route.useSearch();
  const { data: job, error, refetch } = useJob(reference);
  usePageTitle(...(job === undefined ? [reference] : jobTitle(job, view.tab)));
  usePageIcon(job?.state);
  if (job === undefined) {
    return (
      <div className={classes.page}>
        <h1 className={error === null ? classes.unseen : classes.missing}>{reference}</h1>
        {error === null ? <div aria-busy="true" /> : <Failed error={error} retry={() => void refetch()} />}
      </div>
    );
  }
  return (
    <Clock of={["job", reference]}>
      <div className={classes.page}>
        {/* By the job's id: what is shown until an answer comes may be an older one, and never another job's. */}
        <JobHeader key={`header-${job.id}`} job={job} />
        <PageStale of={["job", reference]} />
        <nav aria-label="Parts of this job" className={classes.tabs}>
          {TABS.map((tab) => (
            <Link
              key={tab}
              to="/jobs/$job"
              params={{ job: reference }}
              search={{ ...readLook({ ...view }), ...(tab === "overview" ? {} : { tab }) }}
              resetScroll={false}
              // Only the very same search: the overview's, which is empty, is part of every other.
              activeOptions={{ exact: true }}
              aria-current={(view.tab ?? "overview") === tab ? "page" : undefined}
            >
              {TAB_NAMES[tab]}
            </Link>
          ))}
        </nav>
        <Part key={job.id} job={job} reference={reference} view={view} />
      </div>
    </Clock>
  );
}

function Part({ job, reference, view }: { job: JobView; reference: string; view: JobTab }) {
  switch (view.tab) {
    case "logs":
      return (
        <Suspense fallback={<div aria-busy="true" />}>
          <Logs job={job} reference={reference} view={view} />
        </Suspense>
      );
    case "timeline":
      return <TimelineTab job={job} />;
    case "configuration":
      return <ConfigurationTab job={job} reference={reference} isWhole={view.spec === "whole"} />;
    case "checkpoints":
      return <CheckpointsTab job={job} />;
    case "files":
      return <Files job={job} match={view.match} />;
    default:
      return <OverviewTab job={job} reference={reference} />;
  }
}

function Files({ job, match }: { job: JobView; match: string | undefined }) {
  const navigate = route.useNavigate();
  return (
    <FilesTab
      job={job}
      match={match}
      onMatch={(typed) =>
        void navigate({
          search: (before) => ({ ...readLook({ ...before }), tab: "files", match: typed }),
          replace: true,
          resetScroll: false,
        })
      }
    />
  );
}

function Logs({ job, reference, view }: { job: JobView; reference: string; view: JobTab }) {
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
  const ranks = Math.max(job.attempt?.world_size ?? 1, job.plan?.world_size ?? 1);
  return (
    <section aria-labelledby="logs-title">
      <h2 id="logs-title" className={classes.unseen}>
        Logs
      </h2>
      <LogViewer
        jobId={job.id}
        jobName={job.name}
        attempts={job.attempt?.number ?? 1}
        ranks={ranks}
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
