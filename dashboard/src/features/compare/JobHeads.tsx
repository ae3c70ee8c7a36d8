/** Heads of columns, one for each job, with its line. */
import type { JobView } from "@/api/generated";
import { Swatch } from "@/components/charts/Swatch";
import classes from "./Tables.module.css";

export function JobHeads({ jobs, slots }: { jobs: readonly JobView[]; slots: ReadonlyMap<string, number> }) {
  return jobs.map(({ id, name }) => (
    <th key={id} scope="col" className={classes.job} title={name}>
      <Swatch slot={slots.get(id) ?? 0} /> {name}
    </th>
  ));
}
