/** The settings in which the compared jobs differ, and only those. */
import type { JobView } from "@/api/generated";
import { differing } from "@/lib/differing";
import { JobHeads } from "./JobHeads";
import { Scroller } from "./Scroller";
import classes from "./Tables.module.css";

interface SettingsTableProps {
  jobs: readonly JobView[];
  slots: ReadonlyMap<string, number>;
}

export function SettingsTable({ jobs, slots }: SettingsTableProps) {
  // The name is at the head of the column already.
  const differences = differing(jobs.map(({ spec }) => spec)).filter(({ path }) => path !== "name");
  return (
    <section className={classes.section} aria-labelledby="differing-settings">
      <h2 id="differing-settings">Settings that differ</h2>
      {differences.length === 0 ? (
        <p className={classes.none}>None: these jobs were submitted with the same settings.</p>
      ) : (
        <Scroller label="Settings that differ, as a table">
          <table className={classes.table}>
            <thead>
              <tr>
                <th scope="col">Setting</th>
                <JobHeads jobs={jobs} slots={slots} />
              </tr>
            </thead>
            <tbody>
              {differences.map(({ path, values }) => (
                <tr key={path}>
                  <th scope="row">
                    <code>{path}</code>
                  </th>
                  {values.map((value, index) => (
                    <td key={jobs[index]?.id} title={value}>
                      {value === undefined ? <span className={classes.absent}>not set</span> : value}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </Scroller>
      )}
    </section>
  );
}
