/** One node: its state in words, its devices in their order, and giving it no more work, or work again. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { drainNode, type JobView, type NodeView, resumeNode, type SeriesView } from "@/api/generated";
import { useRights } from "@/api/rights";
import { useClock } from "@/components/Clock";
import { Dialog, DialogAnswer, DialogFoot } from "@/components/Dialog";
import { Failed } from "@/components/Failed";
import { ago, bytes, moment } from "@/lib/format";
import { counted } from "@/lib/resources";
import { DeviceCell } from "./DeviceCell";
import { machineOf, rankOn, STALE_SECONDS, takenBy } from "./measured";
import classes from "./NodePanel.module.css";
import { devicesInWords, meaning } from "./words";

const SIGNS: Record<NodeView["state"], { icon: string; tone: "good" | "wait" | "bad" }> = {
  ready: { icon: "✓", tone: "good" },
  draining: { icon: "◐", tone: "wait" },
  quarantined: { icon: "!", tone: "bad" },
  leaving: { icon: "◐", tone: "wait" },
  lost: { icon: "✕", tone: "bad" },
};

interface Props {
  node: NodeView;
  holders: ReadonlyMap<string, JobView>;
  measured: ReadonlyMap<string, readonly SeriesView[]>;
  lit: string | null;
  light: (job: string | null) => void;
}

export function NodePanel({ node, holders, measured, lit, light }: Props) {
  const { now } = useClock();
  const queries = useQueryClient();
  const [isDraining, setIsDraining] = useState(false);
  const resume = useMutation({
    mutationFn: () => resumeNode({ path: { name: node.name }, throwOnError: true }),
    onSuccess: () => {
      void queries.invalidateQueries({ queryKey: ["nodes"] });
      void queries.invalidateQueries({ queryKey: ["queue"] });
    },
  });
  const drains = useRights().has("node.write");
  const offers = node.offers ?? [];
  const sign = SIGNS[node.state];
  const said = meaning(node);
  const machine = machineOf(node, holders, measured);
  const isFresh = machine.percent !== null && now / 1_000 - machine.percent.at < STALE_SECONDS;
  const devices = [...node.devices].sort((a, b) => a.index - b.index);
  return (
    <section className={classes.node} aria-label={`Node ${node.name}`}>
      <header className={classes.head}>
        <h2 className={classes.name}>{node.name}</h2>
        <span className={classes.state} data-tone={sign.tone}>
          <span aria-hidden>{sign.icon}</span> {node.state}
        </span>
        <span className={classes.fact}>
          <strong>
            {node.devices_free} of {node.devices.length}
          </strong>{" "}
          {node.state === "ready" ? "devices free" : "devices held by no job"}
        </span>
        <span className={classes.fact}>{devicesInWords(node)}</span>
        {isFresh && machine.percent !== null ? (
          <span className={classes.fact}>
            machine: CPU {Math.round(machine.percent.value)} %
            {machine.memoryBytes === null ? null : `, ${bytes(machine.memoryBytes.value)} of memory in use`}
          </span>
        ) : null}
        <span className={classes.fact} title={moment(node.seen_at)}>
          seen {ago(node.seen_at, now)}
        </span>
        {offers.length === 0 ? null : (
          <span className={classes.offers} title="resources.needs of a job can name these">
            offers {offers.join(", ")}
          </span>
        )}
        <Link to="/jobs" search={{ node: node.name }} className={classes.jobs}>
          Jobs on this node
        </Link>
        <span className={classes.act}>
          {drains && node.state === "ready" ? (
            <button type="button" onClick={() => setIsDraining(true)}>
              Drain
            </button>
          ) : null}
          {drains && (node.state === "draining" || node.state === "quarantined") ? (
            <button type="button" disabled={resume.isPending} onClick={() => resume.mutate()}>
              Resume
            </button>
          ) : null}
        </span>
      </header>
      {said === null ? null : (
        <p className={classes.said} data-tone={sign.tone}>
          {said.means} <span className={classes.next}>{said.next}</span>
        </p>
      )}
      {resume.error === null ? null : <Failed error={resume.error} />}
      <ul className={classes.devices} aria-label={`Devices of ${node.name}`}>
        {devices.map((device) => {
          const job = device.job_id === null ? undefined : holders.get(device.job_id);
          const rank = job === undefined ? null : rankOn(job, node, device.index);
          return (
            <DeviceCell
              key={device.index}
              device={device}
              job={job}
              rank={rank}
              use={
                job === undefined || rank === null ? null : takenBy(job, rank, device.kind, measured.get(job.id) ?? [])
              }
              now={now}
              isOpen={node.state === "ready"}
              isLit={lit !== null && lit === device.job_id}
              light={light}
            />
          );
        })}
      </ul>
      {isDraining ? <DrainDialog node={node} holders={holders} close={() => setIsDraining(false)} /> : null}
    </section>
  );
}

interface DrainProps {
  node: NodeView;
  holders: ReadonlyMap<string, JobView>;
  close: () => void;
}

/** Asks before a node is given no more work. The service keeps no reason for it, so none is asked. */
function DrainDialog({ node, holders, close }: DrainProps) {
  const queries = useQueryClient();
  const drain = useMutation({
    mutationFn: () => drainNode({ path: { name: node.name }, throwOnError: true }),
    onSuccess: () => {
      void queries.invalidateQueries({ queryKey: ["nodes"] });
      void queries.invalidateQueries({ queryKey: ["queue"] });
      close();
    },
  });
  const running = [...new Set(node.devices.flatMap((device) => device.job_id ?? []))];
  return (
    <Dialog title={`Drain ${node.name}`} close={close}>
      <p className={classes.note}>
        The node gets no more work until it is resumed.{" "}
        {running.length === 0
          ? "Nothing runs there now."
          : `What runs there runs on: ${running.map((id) => holders.get(id)?.name ?? `job …${id.slice(-6)}`).join(", ")}.`}
      </p>
      {node.devices_free === 0 ? null : (
        <p className={classes.note}>Meanwhile no job gets its {counted(node.devices_free, "free device")}.</p>
      )}
      {drain.error === null ? null : <Failed error={drain.error} />}
      <DialogFoot>
        <DialogAnswer onClick={close}>Keep</DialogAnswer>
        <DialogAnswer kind="main" hasFocus isBusy={drain.isPending} onClick={() => drain.mutate()}>
          Drain {node.name}
        </DialogAnswer>
      </DialogFoot>
    </Dialog>
  );
}
