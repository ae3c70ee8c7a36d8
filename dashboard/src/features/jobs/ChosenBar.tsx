/** What can be done with the selected jobs. It stays at the foot of the window, so that it is there however long the list is. */
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { JobView } from "@/api/generated";
import { useRights } from "@/api/rights";
import { CopyButton } from "@/components/CopyButton";
import { counted } from "@/lib/resources";
import classes from "./ChosenBar.module.css";
import { CANCEL, DELETE, type Deed } from "./deeds";
import { EachDialog } from "./EachDialog";

/** What one comparison can show. */
const COMPARED_MAX = 20;

interface ChosenBarProps {
  chosen: readonly JobView[];
  clear: () => void;
}

export function ChosenBar({ chosen, clear }: ChosenBarProps) {
  /** The jobs as they were when the dialog was opened: it goes on telling of them after they were cancelled or deleted. */
  const [asking, setAsking] = useState<{ deed: Deed; jobs: readonly JobView[]; left: string } | null>(null);
  const rights = useRights();
  const controlled = chosen.filter(rights.controls);
  const only = chosen.length === 1 ? chosen[0] : undefined;
  return (
    <>
      {chosen.length === 0 ? null : (
        <section className={classes.bar} aria-label="Selected jobs">
          <strong>{counted(chosen.length, "job")} selected</strong>
          {[CANCEL, DELETE].map((deed) => {
            const jobs = controlled.filter(deed.isFor);
            const others = controlled.length - jobs.length;
            const left = [
              others === 0 ? "" : deed.ofOthers(others),
              controlled.length === chosen.length ? "" : notYours(chosen.length - controlled.length),
            ].join(" ");
            return jobs.length === 0 ? null : (
              <button
                key={deed.verb}
                type="button"
                className={classes.danger}
                onClick={() => setAsking({ deed, jobs, left })}
              >
                {deed.verb} {counted(jobs.length, "job")}
              </button>
            );
          })}
          {chosen.length >= 2 && chosen.length <= COMPARED_MAX ? (
            <Link to="/compare" search={{ jobs: chosen.map((job) => job.id) }}>
              Compare
            </Link>
          ) : null}
          {chosen.length > COMPARED_MAX ? (
            <span className={classes.hint}>At most {COMPARED_MAX} can be compared</span>
          ) : null}
          {only === undefined || !rights.has("job.submit") ? null : (
            <Link to="/submit" search={{ clone: only.id }}>
              Clone
            </Link>
          )}
          <CopyButton
            text={chosen.map((job) => job.id).join("\n")}
            what={only === undefined ? "ids" : "id"}
            label={only === undefined ? "Copy the ids" : "Copy the id"}
          />
          <button type="button" className={classes.clear} onClick={clear}>
            Clear
          </button>
        </section>
      )}
      {asking === null ? null : (
        <EachDialog
          {...asking}
          close={(wereAsked) => {
            setAsking(null);
            if (wereAsked) clear();
          }}
        />
      )}
    </>
  );
}

function notYours(count: number): string {
  return `${count} more of the selected ${count === 1 ? "belongs to another person and stays" : "belong to other people and stay"}.`;
}
