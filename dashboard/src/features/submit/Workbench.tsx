/** Form, plan and YAML side by side: three views of one text. */
import { Link } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useMemo, useRef, useState } from "react";
import { Failure } from "@/api/client";
import { Button } from "@/components/Button";
import { Diff } from "@/components/Diff";
import { usePageTitle } from "@/components/usePageTitle";
import type { EditorHandle, Mark } from "./editor/handle";
import type { Form } from "./form/context";
import { SpecForm } from "./form/SpecForm";
import { PlanPanel } from "./plan/PlanPanel";
import { Problems } from "./plan/Problems";
import { usePlan } from "./plan/usePlan";
import { Start } from "./Start";
import type { Template } from "./templates";
import { placeOf } from "./text/pointer";
import { readText, valueAt } from "./text/read";
import { useDraft } from "./useDraft";
import { type Original, useSubmission } from "./useSubmission";
import classes from "./Workbench.module.css";

const YamlEditor = lazy(async () => ({ default: (await import("./editor/YamlEditor")).YamlEditor }));

interface Props {
  /** Tells drafts apart. */
  id: string;
  initial: string;
  /** Texts to start from, of a new job. */
  templates: readonly Template[];
  original: Original | null;
}

export function Workbench({ id, initial, templates, original }: Props) {
  usePageTitle(original === null ? "New job" : `Clone of ${original.job.name}`);
  const draft = useDraft(id, initial);
  const { text } = draft;
  const spec = useMemo(() => readText(text), [text]);
  const planned = usePlan(spec);
  const submission = useSubmission(draft.forget);
  const editor = useRef<EditorHandle>(null);
  const [refusedText, setRefusedText] = useState("");

  // A refusal of the submit itself counts until the text is another.
  const refusal = refusedText === text && submission.error instanceof Error ? submission.error : null;
  const refused = refusal instanceof Failure ? (refusal.problem.errors ?? []) : [];
  const problems = refused.length > 0 ? refused : planned.problems;
  const marks = useMemo<Mark[]>(() => {
    const { unreadable } = spec;
    if (unreadable !== null) return [unreadable];
    return problems.map((problem) => ({
      ...placeOf(spec, problem.pointer),
      message: problem.next_step ? `${problem.message}: ${problem.next_step}` : problem.message,
    }));
  }, [spec, problems]);

  function submit() {
    if (spec.unreadable !== null || submission.isPending) return;
    setRefusedText(text);
    submission.mutate({ spec, original });
  }
  useSubmitKey(submit);

  // While the text is no document the form shows, closed, what it said when it last was one.
  const [readable, setReadable] = useState(spec);
  if (spec.unreadable === null && readable !== spec) setReadable(spec);

  const form: Form = {
    spec: readable,
    edit: (change) => draft.setText(change(text)),
    filled: planned.filled,
    problems,
  };
  return (
    <div className={classes.page}>
      <header className={classes.head}>
        <h1>
          {original === null ? (
            "New job"
          ) : (
            <>
              Clone of{" "}
              <Link to="/jobs/$job" params={{ job: original.job.id }}>
                {original.job.name}
              </Link>
            </>
          )}
        </h1>
        <Start
          draft={draft}
          initial={initial}
          templates={templates}
          original={original}
          source={valueAt(spec.value, ["train", "init_from"])}
        />
      </header>
      <div className={classes.columns}>
        <SpecForm form={form} unreadable={spec.unreadable} replace={draft.replace} />
        <div className={classes.side}>
          <section className={classes.panel} aria-labelledby="plan">
            <h2 id="plan">Plan</h2>
            <div className={classes.says}>
              <PlanPanel planned={planned} spec={spec} />
              <Problems problems={problems} spec={spec} reveal={(at) => editor.current?.reveal(at)} />
              {refusal !== null && refused.length === 0 ? <Refused error={refusal} /> : null}
            </div>
            <div className={classes.act}>
              <Button variant="filled" onClick={submit} disabled={spec.unreadable !== null || submission.isPending}>
                {submission.isPending ? "Submitting" : original === null ? "Submit job" : "Submit clone"}
              </Button>
              <span>Ctrl or ⌘ and Enter</span>
            </div>
          </section>
          <section className={classes.yaml} aria-labelledby="yaml">
            <h2 id="yaml">YAML</h2>
            <div className={classes.editor}>
              <Suspense fallback={<pre className={classes.waiting}>{text}</pre>}>
                <YamlEditor ref={editor} label="YAML of the job" text={text} onChange={draft.setText} marks={marks} />
              </Suspense>
            </div>
          </section>
          {original === null ? null : (
            <Diff title="Changes" before={original.text.text} after={text} none="None: the same job again." />
          )}
        </div>
      </div>
    </div>
  );
}

/** Said beside the button, where it is about no line of the text. */
function Refused({ error }: { error: Error }) {
  const isPassing = error instanceof Failure && error.mayPass;
  const nextStep = error instanceof Failure ? error.problem.next_step : undefined;
  return (
    <p className={classes.refused} role="alert">
      <strong>Not submitted.</strong> {error.message} {nextStep ?? ""}
      {isPassing ? " Should it have arrived all the same, submitting again answers with that job." : ""}
    </p>
  );
}

function useSubmitKey(submit: () => void): void {
  const current = useRef(submit);
  current.current = submit;
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) current.current();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
}
