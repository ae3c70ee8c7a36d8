/** Asks before a node is given no more work. The service keeps no reason for it, so none is asked. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { drainNode, type JobView, type NodeView } from "@/api/generated";
import { Dialog, DialogAnswer, DialogFoot } from "@/components/Dialog";
import { Failed } from "@/components/Failed";
import { counted } from "@/lib/resources";
import classes from "./DrainDialog.module.css";

interface Props {
  node: NodeView;
  holders: ReadonlyMap<string, JobView>;
  close: () => void;
}

export function DrainDialog({ node, holders, close }: Props) {
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
      <p className={classes.says}>
        It is given no more work until somebody resumes it.{" "}
        {running.length === 0
          ? "Nothing runs there now."
          : `What runs there runs on: ${running.map((id) => holders.get(id)?.name ?? `job …${id.slice(-6)}`).join(", ")}.`}
      </p>
      {node.devices_free === 0 ? null : (
        <p className={classes.says}>Meanwhile no job gets its {counted(node.devices_free, "free device")}.</p>
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
