/** Selects the job whose spec this one is compared with, by its name or id; the newest ones are suggested. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useId, useState } from "react";
import { type JobView, listJobs } from "@/api/generated";
import { Button } from "@/components/Button";
import { Input } from "@/components/Input";
import { shortId } from "./JobHeader";
import classes from "./SpecPanel.module.css";

const route = getRouteApi("/jobs/$job");
const SUGGESTED = 50;

interface OtherJobProps {
  job: JobView;
  against: string | undefined;
}

/** A new `key` for another job. */
export function OtherJob({ job, against }: OtherJobProps) {
  const navigate = route.useNavigate();
  const [typed, setTyped] = useState(against ?? "");
  const [isAsked, setIsAsked] = useState(false);
  const list = useId();
  const { data: newest = [] } = useQuery({
    queryKey: ["jobs", "newest", SUGGESTED, "of any state"],
    queryFn: async ({ signal }) =>
      (await listJobs({ query: { limit: SUGGESTED }, signal, throwOnError: true })).data.items,
    enabled: isAsked,
  });
  const compare = (reference: string) =>
    void navigate({
      search: (before) => ({ ...before, against: reference === "" ? undefined : reference }),
      replace: true,
      resetScroll: false,
    });
  return (
    <form
      className={classes.other}
      onSubmit={(event) => {
        event.preventDefault();
        compare(typed.trim());
      }}
    >
      <Input
        size="sm"
        aria-label="Job to compare with, by its name or id"
        placeholder="Name or id of another job"
        list={list}
        value={typed}
        onFocus={() => setIsAsked(true)}
        onChange={(event) => setTyped(event.target.value)}
      />
      <datalist id={list}>
        {newest
          .filter(({ id }) => id !== job.id)
          .map(({ id, name, state }) => (
            <option key={id} value={id} label={`${name}, ${state}, ${shortId(id)}`} />
          ))}
      </datalist>
      <Button size="sm" type="submit" disabled={typed.trim() === ""}>
        Compare
      </Button>
      {against === undefined ? null : (
        <Button size="sm" onClick={() => compare("")}>
          Clear
        </Button>
      )}
    </form>
  );
}
