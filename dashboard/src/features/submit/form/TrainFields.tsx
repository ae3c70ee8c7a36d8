/** The sections of a training run: what is learned, the batch, for how long, and how. */
import { ScheduleName, StrategyName, TrainOptimizer, TrainPrecision } from "@/api/generated/choices.gen";
import { Button } from "@/components/Button";
import { removeAt, renameAt, setAt } from "../text/edit";
import { valueAt } from "../text/read";
import { useForm } from "./context";
import { ChoiceField, TextField } from "./Field";
import classes from "./Field.module.css";
import { PairsField } from "./PairsField";
import { Section } from "./Section";
import { argumentsOf, TASKS, taskMeans } from "./tasks";

/** Settings of each optimizer. Those that another does not know go when one changes to it. */
const OPTIMIZERS: Record<string, readonly string[]> = TrainOptimizer;

export function TrainFields() {
  const { spec, edit } = useForm();
  const task = valueAt(spec.value, ["train", "task"]);
  const known = argumentsOf(task);
  const isEpochs = valueAt(spec.value, ["train", "epochs"]) !== undefined;

  function chooseOptimizer(name: string) {
    edit((text) => {
      const left = ["args", ...Object.values(OPTIMIZERS).flat()]
        .filter((field) => !OPTIMIZERS[name]?.includes(field))
        .reduce((kept, field) => removeAt(kept, ["train", "optimizer", field]), text);
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
          choices={Object.keys(OPTIMIZERS)}
          onChoose={chooseOptimizer}
        />
        <TextField label="Learning rate" path={["train", "optimizer", "lr"]} />
        <ChoiceField label="Schedule" path={["train", "schedule", "name"]} choices={ScheduleName} />
        <TextField label="Warm-up (steps)" path={["train", "schedule", "warmup_steps"]} />
        <ChoiceField label="Precision" path={["train", "precision"]} choices={TrainPrecision} />
        <ChoiceField label="Strategy" path={["train", "strategy", "name"]} choices={StrategyName} />
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
    <Button
      variant="link"
      className={classes.change}
      onClick={() =>
        // 200 epochs are not what 200 steps were: the number goes, its place stays.
        edit((text) => setAt(renameAt(text, ["train", from], to), ["train", to], null))
      }
    >
      Count in {to} instead
    </Button>
  );
}
