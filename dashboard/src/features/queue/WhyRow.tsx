/** Row below a job that waits: its reason, its start, its time limit, and the jobs ahead of it. */
import { Link } from "@tanstack/react-router";
import { getWhy, type JobView } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { Failed } from "@/components/Failed";
import { Stale } from "@/components/Stale";
import { WaitReason } from "@/components/WaitReason";
import { span } from "@/lib/format";
import { counted } from "@/lib/resources";
import classes from "./QueueTable.module.css";
import { reasonOf } from "./sections";

export function WhyRow({ job, columns, nameOf }: { job: JobView; columns: number; nameOf: Namer }) {
  const key = ["job", "why", job.id];
  const { data: why, error } = usePolled({
    key,
    fetch: (signal) => getWhy({ path: { reference: job.id }, signal, throwOnError: true }),
    seconds: 10,
  });
  return (
    <tr className={classes.whyRow}>
      <td colSpan={columns}>
        <Stale of={[key]} />
        {why === undefined && error !== null ? <Failed error={error} /> : null}
        <p>
          <WaitReason reason={sentence(reasonOf(job))} nameOf={nameOf} />.{" "}
          {why?.start == null ? null : <WaitReason reason={`${sentence(why.start)}.`} nameOf={nameOf} />}{" "}
          {why?.limit == null ? null : `Time limit: ${span(why.limit.seconds)}${limitSource(why.limit.source)}.`}
        </p>
        {why === undefined || why.ahead_count === 0 ? null : (
          <>
            <p>{counted(why.ahead_count, "job")} ahead of it:</p>
            <ul>
              {why.ahead.map(({ id, name, project, owner, devices, position }) => (
                <li key={id}>
                  <span className={classes.place}>{position}</span>
                  <Link to="/jobs/$job" params={{ job: id }}>
                    {name}
                  </Link>{" "}
                  {counted(devices, "device")}, {project}
                  {owner === "" ? "" : `, by ${owner}`}
                </li>
              ))}
              {why.ahead_count > why.ahead.length ? (
                <li>{counted(why.ahead_count - why.ahead.length, "more job")}</li>
              ) : null}
            </ul>
          </>
        )}
      </td>
    </tr>
  );
}

export type Namer = (id: string) => string | undefined;

function limitSource(source: string | null): string {
  return source === null || source === "job" ? "" : `, default of the ${source}`;
}

function sentence(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
