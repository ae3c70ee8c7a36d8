/** The attempts at a job, newest first: that all of them made the same batch is what is to be seen here at one glance. */
import { useMemo, useState } from "react";
import type { AttemptView, EventView, JobView } from "@/api/generated";
import { Button } from "@/components/Button";
import { useClock } from "@/components/Clock";
import { Failed } from "@/components/Failed";
import { Panel } from "@/components/Panel";
import { number } from "@/lib/format";
import { AttemptRow } from "./AttemptRow";
import classes from "./AttemptsPanel.module.css";
import { promiseOver, spans } from "./attempts";
import { useJobAttempts } from "./job-queries";
import { restoredFiles, resumedSteps } from "./timeline";

/** The newest; the others are shown when asked for. */
const SHOWN = 10;
/** The service lists no more. */
const LISTED_MAX = 500;

export function AttemptsPanel({ job, events }: { job: JobView; events: readonly EventView[] | undefined }) {
  const { data: attempts, error, refetch } = useJobAttempts(job);
  return (
    <Panel title="Attempts">
      {attempts === undefined && error === null ? <div aria-busy="true" /> : null}
      {attempts === undefined && error !== null ? <Failed error={error} retry={() => void refetch()} /> : null}
      {attempts?.length === 0 ? <p className={classes.soft}>{noneYet(job)}</p> : null}
      {attempts === undefined || attempts.length === 0 ? null : (
        <Attempts job={job} attempts={attempts} events={events} />
      )}
    </Panel>
  );
}

interface AttemptsProps {
  job: JobView;
  /** Newest first. */
  attempts: readonly AttemptView[];
  events: readonly EventView[] | undefined;
}

function Attempts({ job, attempts, events }: AttemptsProps) {
  const [all, setAll] = useState(false);
  const { now } = useClock();
  const promise = useMemo(() => promiseOver(attempts), [attempts]);
  const resumed = useMemo(() => resumedSteps(events ?? []), [events]);
  const restored = useMemo(() => restoredFiles(events ?? []), [events]);
  const shown = all ? attempts : attempts.slice(0, SHOWN);
  const places = spans(shown, now);
  const hidden = attempts.length - shown.length;
  return (
    <>
      {promise === null ? null : (
        <p className={classes.promise} data-kept={promise.isKept} data-testid="kept">
          <span aria-hidden>{promise.isKept ? "✓" : "✕"}</span> {promise.words}
        </p>
      )}
      <ol className={classes.attempts}>
        {shown.map((attempt, place) => (
          <AttemptRow
            key={attempt.number}
            job={job}
            attempt={attempt}
            before={attempts[place + 1]}
            resumedFrom={resumed.get(attempt.number)}
            restored={restored.get(attempt.number)}
            span={attempts.length > 1 ? places[place] : undefined}
            now={now}
          />
        ))}
      </ol>
      {hidden > 0 ? (
        <Button size="sm" onClick={() => setAll(true)}>
          Show {number(hidden)} earlier attempts
        </Button>
      ) : null}
      {all && attempts.length >= LISTED_MAX ? (
        <p className={classes.soft}>The service lists the newest {LISTED_MAX}; the events tell of those before.</p>
      ) : null}
    </>
  );
}

function noneYet({ state }: JobView): string {
  if (state === "queued" || state === "starting") return "None yet: it waits for devices.";
  return "None: it ended before any of it ran.";
}
