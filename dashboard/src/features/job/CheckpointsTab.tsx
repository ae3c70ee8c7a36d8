/** What a job has saved: its published checkpoints, newest first, their files, and how to fetch or start from one. */
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { CheckpointView, JobView } from "@/api/generated";
import { useRights } from "@/api/rights";
import { Button, looking } from "@/components/Button";
import { CopyButton } from "@/components/CopyButton";
import { Empty } from "@/components/Empty";
import { Failed } from "@/components/Failed";
import { Panel } from "@/components/Panel";
import { hasEnded } from "@/lib/ended";
import { bytes, moment, number } from "@/lib/format";
import { CheckpointFiles } from "./CheckpointFiles";
import classes from "./CheckpointsTab.module.css";
import { cloneStart } from "./JobActions";
import { shortId } from "./JobHeader";
import { useCheckpoints } from "./job-queries";

export function CheckpointsTab({ job }: { job: JobView }) {
  const { data: checkpoints, error, refetch } = useCheckpoints(job);
  const [opened, setOpened] = useState<string | null>(null);
  const fetches = useRights().has("checkpoint.read", job.project);
  if (job.kind === "script") return <ScriptsKeepTheirOwn />;
  if (checkpoints === undefined) {
    return error === null ? <div aria-busy="true" /> : <Failed error={error} retry={() => void refetch()} />;
  }
  if (checkpoints.length === 0) return <NoCheckpoints job={job} />;
  const measured = checkpoints.some(({ value }) => value != null);
  return (
    <Panel className={classes.panel} title="Checkpoints">
      {fetches ? <Command what="the newest" command={`lockstep ckpt get ${shortId(job.id)} --last`} /> : null}
      <div className={classes.scroll}>
        <table className={classes.table}>
          <thead>
            <tr>
              <th scope="col">Step</th>
              <th scope="col">Marks</th>
              {measured ? <th scope="col">Value</th> : null}
              <th scope="col" className={classes.rare}>
                Attempt
              </th>
              <th scope="col">Size</th>
              <th scope="col">Saved</th>
              <th scope="col" className={classes.rare}>
                SHA-256
              </th>
              <th scope="col">
                <span className={classes.unseen}>What to do</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {checkpoints.map((checkpoint, index) => {
              const id = `${checkpoint.attempt}-${checkpoint.step}`;
              return (
                <Row
                  key={id}
                  job={job}
                  checkpoint={checkpoint}
                  isNewest={index === 0}
                  measured={measured}
                  fetches={fetches}
                  isOpen={opened === id}
                  onToggle={() => setOpened(opened === id ? null : id)}
                />
              );
            })}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

const STARTS = "A new job that starts from these weights; optimizer, schedule and data start from the beginning";

interface RowProps {
  job: JobView;
  checkpoint: CheckpointView;
  isNewest: boolean;
  measured: boolean;
  /** The caller may download it, and start a job from it. */
  fetches: boolean;
  isOpen: boolean;
  onToggle: () => void;
}

function Row({ job, checkpoint, isNewest, measured, fetches, isOpen, onToggle }: RowProps) {
  const submits = useRights().has("job.submit");
  const { step, attempt, value, best, final, created_at, sha256 } = checkpoint;
  const marks = [best ? "best" : "", isNewest ? "last" : "", final ? "final" : ""].filter((mark) => mark !== "");
  return (
    <>
      <tr>
        <th scope="row">{number(step)}</th>
        <td>
          {marks.map((mark) => (
            <span key={mark} className={classes.mark} data-mark={mark}>
              {mark}
            </span>
          ))}
        </td>
        {measured ? <td>{value == null ? "–" : number(value)}</td> : null}
        <td className={classes.rare}>{attempt}</td>
        <td>{bytes(checkpoint.bytes)}</td>
        <td>{moment(created_at)}</td>
        <td className={classes.rare}>
          <code title={sha256}>{sha256.slice(0, 12)}</code>
          <CopyButton text={sha256} what={`digest of step ${step}`} />
        </td>
        <td>
          <div className={classes.doing}>
            <Button size="xs" aria-expanded={isOpen} onClick={onToggle}>
              Files
            </Button>
            {fetches && submits ? (
              <Link to="/submit" search={cloneStart(job.id, step)} {...looking({ size: "xs" })} title={STARTS}>
                Start a job from this
              </Link>
            ) : null}
          </div>
        </td>
      </tr>
      {isOpen ? (
        <tr>
          <td colSpan={measured ? 8 : 7} className={classes.files}>
            {fetches ? (
              <Command what={`step ${step}`} command={`lockstep ckpt get ${shortId(job.id)} --step ${step}`} />
            ) : null}
            <CheckpointFiles jobId={job.id} step={step} attempt={attempt} fetches={fetches} />
          </td>
        </tr>
      ) : null}
    </>
  );
}

function Command({ what, command }: { what: string; command: string }) {
  return (
    <p className={classes.command}>
      <span>Fetch {what}, checked on the way:</span> <code>{command}</code>
      <CopyButton text={command} what="command" />
    </p>
  );
}

function ScriptsKeepTheirOwn() {
  return (
    <Empty title="No checkpoints">
      <p>Those of a script are among its files: Lockstep publishes the checkpoints of jobs of kind train.</p>
    </Empty>
  );
}

function NoCheckpoints({ job }: { job: JobView }) {
  return (
    <Empty
      title={hasEnded(job) ? "It saved no checkpoint" : "No checkpoint yet"}
      command="checkpoint: {every_steps: 50}"
    >
      <p>How often there is one is said in the spec, under train.</p>
    </Empty>
  );
}
