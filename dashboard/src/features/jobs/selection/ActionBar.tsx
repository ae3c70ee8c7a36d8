/** What can be done with the selected jobs. It takes the place of the totals, so that it covers no row. */
import { Link } from "@tanstack/react-router";
import { lazy, Suspense, useState } from "react";
import type { ListedJob } from "@/api/generated";
import { type Rights, useRights } from "@/api/rights";
import { Button, looking } from "@/components/Button";
import { CopyButton } from "@/components/CopyButton";
import { Failed } from "@/components/Failed";
import { COMPARED_MAX } from "@/lib/compared";
import { number } from "@/lib/format";
import { counted } from "@/lib/resources";
import { ALL_MAX, allJobs } from "../useJobs";
import { filterWords, type JobsView } from "../view";
import classes from "./ActionBar.module.css";
import { type ActionWords, CANCEL, DELETE, isWhole, LABEL } from "./actions";
import type { Selection } from "./useSelection";

const EachDialog = lazy(async () => ({ default: (await import("./EachDialog")).EachDialog }));
const LabelsDialog = lazy(async () => ({ default: (await import("./LabelsDialog")).LabelsDialog }));

const ACTIONS = [CANCEL, DELETE, LABEL];

interface ActionBarProps {
  view: JobsView;
  selection: Selection;
  /** Jobs on all pages. */
  total: number;
}

/** Jobs as they were when the dialog was opened: it still shows them after they were cancelled or deleted. */
interface Asking {
  action: ActionWords;
  jobs: readonly ListedJob[];
  left: string;
}

export function ActionBar({ view, selection, total }: ActionBarProps) {
  const [asking, setAsking] = useState<Asking | null>(null);
  const { jobs, isAll, clear } = selection;
  const close = (wereAsked: boolean) => {
    setAsking(null);
    if (wereAsked) clear();
  };
  return (
    <>
      {jobs.length === 0 ? null : (
        <section className={classes.bar} aria-label="Selected jobs" data-actions>
          <strong>{isAll ? allWords(view, total) : `${counted(jobs.length, "job")} selected`}</strong>
          {isAll ? <ActionsOnAll view={view} ask={setAsking} /> : <Actions jobs={jobs} ask={setAsking} />}
          {isAll || total <= jobs.length || view.group !== undefined ? null : (
            <Button size="sm" onClick={selection.selectAll}>
              Select all {number(total)}
            </Button>
          )}
          <Button variant="subtle" size="sm" title="Esc" onClick={clear}>
            Clear
          </Button>
        </section>
      )}
      {asking === null ? null : <Question {...asking} close={close} />}
    </>
  );
}

function Question({ action, ...asking }: Asking & { close: (wereAsked: boolean) => void }) {
  return (
    <Suspense fallback={null}>
      {isWhole(action) ? <EachDialog {...asking} action={action} /> : <LabelsDialog {...asking} />}
    </Suspense>
  );
}

/** "All 37 jobs that match owner:ada selected". */
function allWords(view: JobsView, total: number): string {
  const words = filterWords(view);
  return `All ${counted(total, "job")}${words === "" ? "" : ` that match ${words}`} selected`;
}

function Actions({ jobs, ask }: { jobs: readonly ListedJob[]; ask: (asking: Asking) => void }) {
  const rights = useRights();
  const only = jobs.length === 1 ? jobs[0] : undefined;
  return (
    <>
      {jobs.length >= 2 && jobs.length <= COMPARED_MAX ? (
        <Link
          to="/compare"
          search={{ jobs: jobs.map(({ id }) => id) }}
          {...looking({ variant: "filled", size: "sm" })}
          title="c"
        >
          Compare
        </Link>
      ) : null}
      {jobs.length > COMPARED_MAX ? <span className={classes.hint}>At most {COMPARED_MAX} can be compared</span> : null}
      {ACTIONS.map((action) => {
        const meant = askingOf(action, jobs, rights);
        return meant.jobs.length === 0 ? null : (
          <Button size="sm" isDanger={action.isDanger} key={action.verb} onClick={() => ask(meant)}>
            {action.verb} {counted(meant.jobs.length, "job")}
          </Button>
        );
      })}
      {only === undefined || !rights.has("job.submit") ? null : (
        <Link to="/submit" search={{ clone: only.id }} {...looking({ size: "sm" })}>
          Clone
        </Link>
      )}
      <CopyButton
        size="sm"
        text={jobs.map(({ id }) => id).join("\n")}
        what={only === undefined ? "ids" : "id"}
        label={only === undefined ? "Copy the ids" : "Copy the id"}
      />
    </>
  );
}

/** The service lists them again, so that the dialog has those that match now. */
function ActionsOnAll({ view, ask }: { view: JobsView; ask: (asking: Asking) => void }) {
  const rights = useRights();
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const begin = async (action: ActionWords) => {
    setIsBusy(true);
    setError(null);
    try {
      ask(askingOf(action, await allJobs(view), rights));
    } catch (failure) {
      setError(failure);
    }
    setIsBusy(false);
  };
  return (
    <>
      {ACTIONS.map((action) => (
        <Button
          size="sm"
          isDanger={action.isDanger}
          key={action.verb}
          disabled={isBusy}
          title={`At most ${number(ALL_MAX)} at once`}
          onClick={() => void begin(action)}
        >
          {action.verb} …
        </Button>
      ))}
      {error === null ? null : <Failed error={error} />}
    </>
  );
}

function askingOf(action: ActionWords, chosen: readonly ListedJob[], rights: Rights): Asking {
  const controlled = chosen.filter(action === CANCEL ? rights.controls : rights.writes);
  const jobs = controlled.filter(action.isFor);
  const others = controlled.length - jobs.length;
  const foreign = chosen.length - controlled.length;
  const left = [others === 0 ? "" : action.ofOthers(others), foreign === 0 ? "" : notYours(foreign)].join(" ");
  return { action, jobs, left };
}

function notYours(count: number): string {
  return `${count} more of the selected ${count === 1 ? "belongs to another person and stays" : "belong to other people and stay"}.`;
}
