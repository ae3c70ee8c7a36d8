/** One node: its state in words, its devices in their order, and its drain, its resumption or its removal. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { type JobView, type NodeView, removeNode, resumeNode, type SeriesView } from "@/api/generated";
import { useRights } from "@/api/rights";
import { Button } from "@/components/Button";
import { useClock } from "@/components/Clock";
import { Failed } from "@/components/Failed";
import { ago, bytes, moment } from "@/lib/format";
import { DeviceTable } from "./DeviceTable";
import { DrainDialog } from "./DrainDialog";
import { machineOf, STALE_SECONDS } from "./measured";
import classes from "./NodePanel.module.css";
import { devicesInWords, meaning, sinceInWords } from "./words";

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
  const isLost = node.state === "lost";
  const change = useMutation({
    mutationFn: async () => {
      const options = { path: { name: node.name }, throwOnError: true } as const;
      await (isLost ? removeNode(options) : resumeNode(options));
    },
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
            <Button size="sm" onClick={() => setIsDraining(true)}>
              Drain
            </Button>
          ) : null}
          {drains && (isLost || node.state === "draining" || node.state === "quarantined") ? (
            <Button size="sm" disabled={change.isPending} onClick={() => change.mutate()}>
              {isLost ? "Remove" : "Resume"}
            </Button>
          ) : null}
        </span>
      </header>
      {said === null ? null : (
        <p className={classes.said} data-tone={sign.tone}>
          {said.means}
          {node.since == null ? null : (
            <>
              {" "}
              <time dateTime={node.since} title={moment(node.since)}>
                {sinceInWords(node, now)}
              </time>
            </>
          )}{" "}
          <span className={classes.next}>{said.next}</span>
        </p>
      )}
      {change.error === null ? null : <Failed error={change.error} />}
      <DeviceTable node={node} holders={holders} measured={measured} now={now} lit={lit} light={light} />
      {isDraining ? <DrainDialog node={node} holders={holders} close={() => setIsDraining(false)} /> : null}
    </section>
  );
}
