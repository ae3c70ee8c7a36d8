/** The sections of a training run: what is learned, the batch, for how long, and how. */
import type { AdamW, Schedule, Sgd, Strategy, Train } from "@/api/generated";
import { removeAt, renameAt, setAt } from "../text/edit";
import { valueAt } from "../text/read";
import { useForm } from "./context";
import { ChoiceField, every, TextField } from "./Field";
import { PairsField } from "./PairsField";
import { Section } from "./Section";
import { argumentsOf, TASKS, taskMeans } from "./tasks";

const PRECISIONS = every<NonNullable<Train["precision"]>>({ fp32: true, bf16: true, fp16: true });
const SCHEDULES = every<NonNullable<Schedule["name"]>>({ constant: true, cosine: true, linear: true });
const STRATEGIES = every<NonNullable<Strategy["name"]>>({
  ddp: true,
  manual: true,
  data_parallel: true,
  zero1: true,
  fsdp: true,
  local_sgd: true,
  diloco: true,
});
type OptimizerName = NonNullable<AdamW["name"]> | Sgd["name"];
const OPTIMIZERS = every<OptimizerName>({ adamw: true, sgd: true });
/** Settings that the other optimizer does not know, and that go when one changes to it. */
const OWN: Record<OptimizerName, string[]> = {
  adamw: every<Exclude<keyof AdamW, keyof Sgd>>({ betas: true, eps: true }),
  sgd: every<Exclude<keyof Sgd, keyof AdamW>>({ momentum: true, nesterov: true }),
};

export function TrainFields() {
  const { spec, edit } = useForm();
  const task = valueAt(spec.value, ["train", "task"]);
  const known = argumentsOf(task);
  const isEpochs = valueAt(spec.value, ["train", "epochs"]) !== undefined;

  function chooseOptimizer(name: string) {
    edit((text) => {
      const left = OPTIMIZERS.filter((other) => other !== name)
        .flatMap((other) => OWN[other])
        .reduce((kept, own) => removeAt(kept, ["train", "optimizer", own]), text);
      return setAt(left, ["train", "optimizer", "name"], name);
    });
  }

  return (
    <>
      <Section title="Batch" says="The batch size is a promise: it will not change, however many devices the job gets.">
        <TextField large needed label="Batch size" path={["train", "batch", "size"]} hint="samples in one step" />
        <TextField label="Micro-batch size" path={["train", "batch", "micro_size"]} suggestions={["auto"]} />
      </Section>
      <Section title="Task" says={taskMeans(task)}>
        <TextField
          needed
          wide
          label="Task, or file.py:Class of your code"
          path={["train", "task"]}
          as="text"
          suggestions={TASKS}
        />
        {known.map(({ name, fallback, isNeeded, isText }) => (
          <TextField
            key={name}
            label={name}
            path={["train", "task_args", name]}
            as={isText ? "text" : "typed"}
            hint={isNeeded ? "needed" : (fallback ?? "none")}
          />
        ))}
        <PairsField
          legend={known.length > 0 ? "Other arguments" : "Arguments of the task"}
          noun="argument"
          path={["train", "task_args"]}
          as="typed"
          except={known.map(({ name }) => name)}
        />
      </Section>
      <Section title="Length">
        <TextField
          needed
          label={isEpochs ? "Epochs" : "Steps"}
          path={["train", isEpochs ? "epochs" : "steps"]}
          hint={isEpochs ? "passes over the data" : "optimizer steps"}
        />
        <LengthUnit isEpochs={isEpochs} />
        <TextField label="Checkpoint every (steps)" path={["train", "checkpoint", "every_steps"]} hint="only the end" />
        <TextField label="Evaluate every (steps)" path={["train", "eval", "every_steps"]} hint="never" />
      </Section>
      <Section title="Learning">
        <ChoiceField
          label="Optimizer"
          path={["train", "optimizer", "name"]}
          choices={OPTIMIZERS}
          onChoose={chooseOptimizer}
        />
        <TextField label="Learning rate" path={["train", "optimizer", "lr"]} />
        <ChoiceField label="Schedule" path={["train", "schedule", "name"]} choices={SCHEDULES} />
        <TextField label="Warm-up (steps)" path={["train", "schedule", "warmup_steps"]} />
        <ChoiceField label="Precision" path={["train", "precision"]} choices={PRECISIONS} />
        <ChoiceField label="Strategy" path={["train", "strategy", "name"]} choices={STRATEGIES} />
        <TextField label="Seed" path={["train", "seed"]} />
        <TextField label="Start from weights" path={["train", "init_from"]} as="text" hint="job:ID@STEP or a path" />
      </Section>
    </>
  );
}

function LengthUnit({ isEpochs }: { isEpochs: boolean }) {
  const { edit } = useForm();
  const from = isEpochs ? "epochs" : "steps";
  const to = isEpochs ? "steps" : "epochs";
  return (
    <button
      type="button"
      data-quiet
      onClick={() =>
        // 200 epochs are not what 200 steps were: the number goes, its place stays.
        edit((text) => setAt(renameAt(text, ["train", from], to), ["train", to], null))
      }
    >
      Count in {to} instead
    </button>
  );
}
