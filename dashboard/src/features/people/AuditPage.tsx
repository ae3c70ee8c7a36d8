/** Who changed what, and which requests were refused: newest first. */
import { useState } from "react";
import { type AuditView, listAudit } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { Button } from "@/components/Button";
import { Failed } from "@/components/Failed";
import { SkeletonRows } from "@/components/SkeletonRows";
import { usePageTitle } from "@/components/usePageTitle";
import { moment } from "@/lib/format";
import classes from "./PeoplePages.module.css";

export function AuditPage() {
  usePageTitle("Audit");
  /** Cursors of the pages that were opened, the newest page first. */
  const [cursors, setCursors] = useState<string[]>([]);
  const cursor = cursors.length === 0 ? undefined : Number(cursors.at(-1));
  const { data, error, refetch } = usePolled({
    key: ["people", "audit", cursor ?? 0],
    fetch: (signal) => listAudit({ query: { cursor, limit: 50 }, signal, throwOnError: true }),
    seconds: 10,
  });
  return (
    <>
      <h1 className={classes.title}>Audit</h1>
      <p className={classes.summary}>Each change and each refused request, newest first.</p>
      {data === undefined && error !== null ? <Failed error={error} retry={() => void refetch()} /> : null}
      {data === undefined && error === null ? <SkeletonRows label="The audit is loading" /> : null}
      {data === undefined ? null : <AuditTable rows={data.items} />}
      {data === undefined && cursors.length === 0 ? null : (
        <>
          <Button disabled={cursors.length === 0} onClick={() => setCursors(cursors.slice(0, -1))}>
            Newer
          </Button>{" "}
          <Button disabled={!data?.next_cursor} onClick={() => setCursors([...cursors, data?.next_cursor ?? ""])}>
            Older
          </Button>
        </>
      )}
    </>
  );
}

function AuditTable({ rows }: { rows: readonly AuditView[] }) {
  return (
    <div className={classes.panel}>
      <table className={classes.cards}>
        <caption className={classes.caption}>Changes and refused requests</caption>
        <thead>
          <tr>
            <th scope="col">Time</th>
            <th scope="col">Who</th>
            <th scope="col">Action</th>
            <th scope="col">Object</th>
            <th scope="col">Project</th>
            <th scope="col">Outcome</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.id}>
              <td className={classes.time}>{moment(row.at)}</td>
              <th scope="row">{row.actor}</th>
              <td data-name="Action">{row.action}</td>
              <td data-name="Object">{row.target}</td>
              <td data-name="Project">{row.project ?? "–"}</td>
              <td data-name="Outcome">{row.outcome === "ok" ? "done" : "refused"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
