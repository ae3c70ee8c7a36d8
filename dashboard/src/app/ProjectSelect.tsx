/** Choice of a project in the bar, loaded for those who have one. */
import { NativeSelect } from "@/components/mantine";
import classes from "./Shell.module.css";

interface ProjectSelectProps {
  options: { value: string; label: string }[];
  /** Empty for all. */
  project: string;
  choose: (project: string | undefined) => void;
}

export function ProjectSelect({ options, project, choose }: ProjectSelectProps) {
  return (
    <NativeSelect
      size="xs"
      className={classes.project}
      aria-label="Project"
      data={options}
      value={project}
      onChange={(event) => choose(event.currentTarget.value || undefined)}
    />
  );
}
