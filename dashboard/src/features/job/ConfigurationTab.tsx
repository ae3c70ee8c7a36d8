/** The spec, what the service worked out from it, where the code came from, and where it ran. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { JobView } from "@/api/generated";
import { CopyButton } from "@/components/CopyButton";
import { Panel } from "@/components/Panel";
import { bytes, moment, number } from "@/lib/format";
import { ownerOf } from "@/lib/owner";
import { timeLimitWords } from "@/lib/time-limit";
import { CommitId } from "./CommitId";
import classes from "./ConfigurationTab.module.css";
import { type Code, codeOf } from "./job-code";
import { useCommit } from "./job-queries";
import { SpecPanel } from "./SpecPanel";

type Fact = [name: string, value: ReactNode];

interface Props {
  job: JobView;
  reference: string;
  isWhole: boolean;
  /** Name or id of a job that the spec is compared with. */
  against: string | undefined;
}

export function ConfigurationTab({ job, reference, isWhole, against }: Props) {
  return (
    <div className={classes.parts}>
      <SpecPanel job={job} reference={reference} isWhole={isWhole} against={against} />
      <div className={classes.side}>
        <CodeFacts job={job} />
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
    <Panel title={title}>
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
    </Panel>
  );
}

/** Nothing is said of a job that brought no files: a built-in task needs none. */
function CodeFacts({ job }: { job: JobView }) {
  const code = codeOf(job.spec);
  const git = useCommit(job);
  if (code === null) return null;
  return <Facts title="The code" facts={git === null ? filesFacts(code) : gitFacts(git)} empty="" />;
}

function gitFacts({ url, ref, commit }: NonNullable<ReturnType<typeof useCommit>>): Fact[] {
  return [
    ["Repository", url],
    ["Submitted as", ref === commit ? null : ref],
    ["Commit, of every attempt", commit === null ? "not known yet" : <CommitId key="commit" commit={commit} />],
  ];
}

function filesFacts(code: Code): Fact[] {
  if (code.kind === "path") return [["Folder on the nodes", code.path]];
  if (code.kind === "git") return [];
  return [
    [
      "Uploaded archive, SHA-256",
      <span key="digest">
        <code title={code.sha256}>{code.sha256.slice(0, 12)}</code>
        <CopyButton text={code.sha256} what="digest of the code" />
      </span>,
    ],
  ];
}

function planFacts({ plan, plan_sentence: sentence }: JobView): Fact[] {
  if (plan === null) return [];
  const settled = (value: number | null) => (value === null ? "chosen by the first attempt" : number(value));
  return [
    ["In words", sentence],
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
  const stages = (memory.stages ?? []).map(
    ({ blocks, peak }, stage): Fact => [`Stage ${stage}, ${blocks} ${blocks === 1 ? "block" : "blocks"}`, bytes(peak)],
  );
  return [...parts, ["At the fullest moment", bytes(memory.peak)], ...stages];
}

function runFacts(job: JobView): Fact[] {
  const { attempt } = job;
  return [
    [
      "Id",
      <span key="id">
        {job.id} <CopyButton text={job.id} what="id" />
      </span>,
    ],
    [
      "Project",
      <Link key="project" to="/jobs" search={{ project: job.project }} title={`Jobs of project ${job.project}`}>
        {job.project}
      </Link>,
    ],
    ["Owner", ownerOf(job)],
    ["Labels", labelLinks(job)],
    ["Kind", job.kind],
    ["Priority", number(job.priority)],
    ["Time limit", job.limit == null ? null : timeLimitWords(job.limit)],
    ["Nodes", attempt?.nodes.join(", ")],
    ["Ranks that run, or ran", attempt === null ? null : number(attempt.world_size)],
    ["Attempts", attempt === null ? null : number(attempt.number)],
    ["Submitted", moment(job.created_at)],
    ["Started", job.started_at === null ? null : moment(job.started_at)],
    ["Ended", job.finished_at === null ? null : moment(job.finished_at)],
  ];
}

function labelLinks({ labels }: JobView): ReactNode {
  const pairs = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  if (pairs.length === 0) return null;
  return (
    <span className={classes.labels}>
      {pairs.map((label) => (
        <Link key={label} to="/jobs" search={{ label }} title={`Jobs with ${label}`}>
          {label}
        </Link>
      ))}
    </span>
  );
}
