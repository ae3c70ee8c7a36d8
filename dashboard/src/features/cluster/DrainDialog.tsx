/** Question before a node is given no more work. It asks for the reason, which all readers of the node see. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { drainNode, type JobView, type NodeView } from "@/api/generated";
import { Dialog, DialogAnswer, DialogFoot } from "@/components/Dialog";
import { Failed } from "@/components/Failed";
import { TextInput } from "@/components/mantine";
import { counted } from "@/lib/resources";
import classes from "./NodePanel.module.css";

/** As the service limits it. */
const REASON_CHARS_MAX = 200;

interface Props {
  node: NodeView;
  holders: ReadonlyMap<string, JobView>;
  close: () => void;
}

export function DrainDialog({ node, holders, close }: Props) {
  const queries = useQueryClient();
  const [reason, setReason] = useState("");
  const drain = useMutation({
    mutationFn: () => drainNode({ path: { name: node.name }, query: { reason }, throwOnError: true }),
    onSuccess: () => {
      for (const key of ["nodes", "queue"]) void queries.invalidateQueries({ queryKey: [key] });
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
      <TextInput
        label="Reason"
        placeholder="new power supply, until Friday"
        maxLength={REASON_CHARS_MAX}
        value={reason}
        data-autofocus
        onChange={(event) => setReason(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && reason.trim() !== "" && !drain.isPending) drain.mutate();
        }}
      />
      {drain.error === null ? null : <Failed error={drain.error} />}
      <DialogFoot>
        <DialogAnswer onClick={close}>Keep</DialogAnswer>
        <DialogAnswer kind="main" isBusy={drain.isPending || reason.trim() === ""} onClick={() => drain.mutate()}>
          Drain {node.name}
        </DialogAnswer>
      </DialogFoot>
    </Dialog>
  );
}
