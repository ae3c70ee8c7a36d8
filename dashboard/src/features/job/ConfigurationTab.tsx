/** The spec as it was sent, what the service worked out from it, and where it ran. */
import { useQuery } from "@tanstack/react-query";
import type { JobView } from "@/api/generated";
import { bytes, moment, number } from "@/lib/format";
import { saveFile } from "@/lib/save-file";
import buttons from "./buttons.module.css";
import classes from "./ConfigurationTab.module.css";
import { CopyButton } from "./CopyButton";

type Fact = [name: string, value: string | null | undefined];

export function ConfigurationTab({ job }: { job: JobView }) {
  const { data: yaml } = useQuery({
    queryKey: ["job", job.id, "yaml"],
    // Only this part of the page writes YAML.
    queryFn: async () => (await import("yaml")).stringify(job.spec, { lineWidth: 100 }),
    staleTime: Number.POSITIVE_INFINITY,
  });
  return (
    <div className={classes.parts}>
      <section className={classes.panel} aria-labelledby="spec-title">
        <div className={classes.head}>
          <h2 id="spec-title">Spec</h2>
          <CopyButton text={yaml ?? ""} what="spec" label="Copy" />
          <button
            type="button"
            className={buttons.button}
            disabled={yaml === undefined}
            onClick={() => saveFile(`${job.name}.yaml`, new Blob([yaml ?? ""], { type: "application/yaml" }))}
          >
            Download
          </button>
        </div>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard */}
        <pre className={classes.yaml} tabIndex={0} data-testid="spec-yaml">
          {yaml}
        </pre>
      </section>
      <div className={classes.side}>
        <Facts title="The batch plan" facts={planFacts(job)} empty="A script keeps its own loop: there is no plan." />
        <Facts title="Memory of one rank, forecast" facts={memoryFacts(job)} empty="Not forecast." />
        <Facts title="The run" facts={runFacts(job)} empty="" />
      </div>
    </div>
  );
}

function Facts({ title, facts, empty }: { title: string; facts: Fact[]; empty: string }) {
  const known = facts.filter(([, value]) => value != null && value !== "");
  return (
    <section className={classes.panel} aria-label={title}>
      <h2>{title}</h2>
      {known.length === 0 ? <p className={classes.empty}>{empty}</p> : null}
      <table className={classes.facts}>
        <tbody>
          {known.map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{value}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function planFacts({ plan }: JobView): Fact[] {
  if (plan === null) return [];
  const settled = (value: number | null) => (value === null ? "settled by the first attempt" : number(value));
  return [
    ["Batch, samples a step", number(plan.batch_size)],
    ["Ranks", number(plan.world_size)],
    ["Micro-batch, samples", settled(plan.micro_batch_size)],
    ["Accumulation steps", settled(plan.accumulation_steps)],
    ["Optimizer steps", plan.steps == null ? "known once the data is" : number(plan.steps)],
    ["Samples in all", plan.steps == null ? null : number(plan.steps * plan.batch_size)],
  ];
}

const MEMORY_PARTS = ["weights", "buffers", "gradients", "optimizer", "activations", "temporary", "buckets"] as const;

function memoryFacts({ plan }: JobView): Fact[] {
  const memory = plan?.memory;
  if (memory == null) return [];
  const parts = MEMORY_PARTS.map((part): Fact => [part.charAt(0).toUpperCase() + part.slice(1), bytes(memory[part])]);
  return [...parts, ["At the fullest moment", bytes(memory.peak)]];
}

function runFacts(job: JobView): Fact[] {
  const { attempt } = job;
  return [
    ["Id", job.id],
    ["Kind", job.kind],
    ["Priority", number(job.priority)],
    ["Nodes", attempt?.nodes.join(", ")],
    ["Ranks that run, or ran", attempt === null ? null : number(attempt.world_size)],
    ["Attempts", attempt === null ? null : number(attempt.number)],
    ["Submitted", moment(job.created_at)],
    ["Started", job.started_at === null ? null : moment(job.started_at)],
    ["Ended", job.finished_at === null ? null : moment(job.finished_at)],
  ];
}
