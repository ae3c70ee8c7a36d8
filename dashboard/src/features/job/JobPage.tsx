/** One job: what it is and how far it is, and below that the part that the address names, with the log beside it. */
import { getRouteApi, Link } from "@tanstack/react-router";
import { lazy, Suspense, useLayoutEffect, useRef, useState } from "react";
import type { JobView } from "@/api/generated";
import { useKeys } from "@/app/keys";
import { Button } from "@/components/Button";
import { Clock } from "@/components/Clock";
import { Failed } from "@/components/Failed";
import { PageStale } from "@/components/Stale";
import { usePageIcon, usePageTitle } from "@/components/usePageTitle";
import { useRemembered } from "@/components/useRemembered";
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

const LogsTab = lazy(async () => ({ default: (await import("./LogsTab")).LogsTab }));
const LogDrawer = lazy(async () => ({ default: (await import("./LogDrawer")).LogDrawer }));
const route = getRouteApi("/jobs/$job");

export function JobPage() {
  const { job: reference } = route.useParams();
  const view = route.useSearch();
  const { data: job, error, refetch } = useJob(reference);
  usePageTitle(...(job === undefined ? [reference] : jobTitle(job, view.tab)));
  usePageIcon(job?.state, job?.progress?.fraction);
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
      {/* By the job's id: what is shown until an answer comes may be an older one, and never another job's. */}
      <Job key={job.id} job={job} reference={reference} view={view} />
    </Clock>
  );
}

function Job({ job, reference, view }: { job: JobView; reference: string; view: JobTab }) {
  const [controls, setControls] = useState<HTMLElement | null>(null);
  const [withLog, setWithLog] = useRemembered("lockstep.job.log");
  const isCharts = (view.tab ?? "overview") === "overview";
  // The part that is the log itself has no second one beside it.
  const hasDrawer = view.tab !== "logs";
  useKeys({
    l: () => {
      if (hasDrawer) setWithLog(!withLog);
    },
  });
  return (
    <div className={classes.page}>
      <JobHeader job={job}>
        <Tabs reference={reference} view={view} />
        {isCharts ? <div ref={setControls} className={classes.controls} /> : null}
        {hasDrawer ? (
          <Button
            size="sm"
            className={classes.log}
            aria-pressed={withLog}
            title="Show the log beside it (l)"
            onClick={() => setWithLog(!withLog)}
          >
            Log
          </Button>
        ) : null}
      </JobHeader>
      <PageStale of={["job", reference]} />
      <div className={classes.body}>
        <div className={classes.part}>
          <Part job={job} reference={reference} view={view} controls={controls} />
        </div>
        {hasDrawer && withLog ? (
          <Suspense fallback={null}>
            <LogDrawer job={job} onClose={() => setWithLog(false)} />
          </Suspense>
        ) : null}
      </div>
    </div>
  );
}

function Tabs({ reference, view }: { reference: string; view: JobTab }) {
  const line = useRef<HTMLElement>(null);
  // On a telephone the last parts are beyond the edge of the line, which scrolls.
  // biome-ignore lint/correctness/useExhaustiveDependencies: again for each part
  useLayoutEffect(() => {
    const { current: box } = line;
    if (box === null) return;
    const observer = new ResizeObserver(() => {
      const right = box.querySelector("[aria-current=page]")?.getBoundingClientRect().right ?? 0;
      box.scrollLeft += Math.max(0, right - box.getBoundingClientRect().right);
    });
    observer.observe(box);
    return () => observer.disconnect();
  }, [view.tab]);
  return (
    <nav aria-label="Parts of this job" className={classes.tabs} ref={line}>
      {TABS.map((tab) => (
        <Link
          key={tab}
          to="/jobs/$job"
          params={{ job: reference }}
          search={{ ...readLook({ ...view }), ...(tab === "overview" ? {} : { tab }) }}
          resetScroll={false}
          // Only the very same search: that of the charts, which is empty, is part of every other.
          activeOptions={{ exact: true }}
          aria-current={(view.tab ?? "overview") === tab ? "page" : undefined}
        >
          {TAB_NAMES[tab]}
        </Link>
      ))}
    </nav>
  );
}

interface PartProps {
  job: JobView;
  reference: string;
  view: JobTab;
  /** The place of the charts' controls, once it is there. */
  controls: HTMLElement | null;
}

function Part({ job, reference, view, controls }: PartProps) {
  switch (view.tab) {
    case "logs":
      return (
        <Suspense fallback={<div aria-busy="true" />}>
          <LogsTab job={job} reference={reference} view={view} />
        </Suspense>
      );
    case "timeline":
      return <TimelineTab job={job} />;
    case "configuration":
      return (
        <ConfigurationTab job={job} reference={reference} isWhole={view.spec === "whole"} against={view.against} />
      );
    case "checkpoints":
      return <CheckpointsTab job={job} />;
    case "files":
      return <Files job={job} match={view.match} />;
    default:
      return <OverviewTab job={job} reference={reference} controls={controls} />;
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
