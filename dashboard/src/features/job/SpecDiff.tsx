/** What of a job's spec differs from another job's, as submitted or with every default. Loaded with YAML, when asked for. */
import { useQuery } from "@tanstack/react-query";
import { getJob, getJobSpec, type JobView } from "@/api/generated";
import { Diff } from "@/components/Diff";
import { Failed } from "@/components/Failed";
import { useWholeSpec } from "./job-queries";
import { yamlOf } from "./spec-lines";

interface SpecDiffProps {
  job: JobView;
  against: string;
  isWhole: boolean;
}

export function SpecDiff({ job, against, isWhole }: SpecDiffProps) {
  const whole = useWholeSpec(job, isWhole);
  const other = useQuery({
    queryKey: ["job", against, "spec of another", isWhole],
    queryFn: async ({ signal }) => {
      const { id, name, spec } = (await getJob({ path: { reference: against }, signal, throwOnError: true })).data;
      if (!isWhole) return { name, spec };
      const { data } = await getJobSpec({ path: { reference: id }, signal, throwOnError: true });
      return { name, spec: data.spec };
    },
  });
  const error = other.error ?? whole.error;
  if (error !== null) return <Failed error={error} retry={() => void (other.error ? other : whole).refetch()} />;
  const own = isWhole ? whole.data : job.spec;
  if (own === undefined || other.data === undefined) return <div aria-busy="true" />;
  return (
    <Diff
      title={`From ${other.data.name} to ${job.name}`}
      before={yamlOf(other.data.spec)}
      after={yamlOf(own)}
      none="Both specs are the same."
    />
  );
}
