/** The log beside the other parts of a job's page; on a small screen below them. Its filter is its own, and no address's. */
import { getRouteApi, Link, useRouter } from "@tanstack/react-router";
import { type CSSProperties, type PointerEvent, useCallback, useState } from "react";
import type { JobView } from "@/api/generated";
import { Button, looking } from "@/components/Button";
import { LogViewer } from "@/components/logs/LogViewer";
import type { LogView } from "@/lib/log-view";
import { clampedWidth, storedWidth, storeWidth, WIDTH_MAX, WIDTH_MIN, widthAfter } from "./drawer-size";
import classes from "./LogDrawer.module.css";
import { ranksOf } from "./ranks";

const route = getRouteApi("/jobs/$job");

export function LogDrawer({ job, onClose }: { job: JobView; onClose: () => void }) {
  const [view, setView] = useState<LogView>({});
  const [width, setWidth] = useState(storedWidth);
  const { job: reference } = route.useParams();
  const router = useRouter();
  const hrefOf = useCallback(
    (next: LogView) =>
      router.buildLocation({ to: "/jobs/$job", params: { job: reference }, search: { ...next, tab: "logs" } }).href,
    [router, reference],
  );
  return (
    <section className={classes.drawer} style={{ "--drawer-width": `${width}px` } as CSSProperties} aria-label="Log">
      <Edge width={width} onWidth={setWidth} />
      <div className={classes.head}>
        <h2>Log</h2>
        <Link
          to="/jobs/$job"
          params={{ job: reference }}
          search={{ ...view, tab: "logs" }}
          {...looking({ variant: "link" })}
        >
          Whole page
        </Link>
        <Button variant="link" title="Close (l)" onClick={onClose}>
          Close
        </Button>
      </div>
      <LogViewer
        jobId={job.id}
        jobName={job.name}
        attempts={job.attempt?.number ?? 1}
        ranks={ranksOf(job)}
        view={view}
        onView={setView}
        hrefOf={hrefOf}
        fills
      />
    </section>
  );
}

/** The left edge: dragged, or moved by the arrow keys. */
function Edge({ width, onWidth }: { width: number; onWidth: (width: number) => void }) {
  const widthAt = ({ currentTarget, clientX }: PointerEvent<HTMLElement>) => {
    const right = currentTarget.parentElement?.getBoundingClientRect().right ?? window.innerWidth;
    return clampedWidth(right - clientX);
  };
  return (
    // biome-ignore lint/a11y/useSemanticElements: a rule of HTML has no value and takes no focus
    <div
      className={classes.edge}
      role="separator"
      aria-orientation="vertical"
      aria-label="Width of the log"
      aria-valuemin={WIDTH_MIN}
      aria-valuemax={WIDTH_MAX}
      aria-valuenow={width}
      tabIndex={0}
      onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
      onPointerMove={(event) => {
        if (event.currentTarget.hasPointerCapture(event.pointerId)) onWidth(widthAt(event));
      }}
      onLostPointerCapture={(event) => storeWidth(widthAt(event))}
      onKeyDown={(event) => {
        const next = widthAfter(event.key, width);
        if (next === null) return;
        event.preventDefault();
        onWidth(next);
        storeWidth(next);
      }}
    />
  );
}
