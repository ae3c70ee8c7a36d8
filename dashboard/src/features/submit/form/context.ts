/** What every field of the form works on: the one text, how to change it, and what the service says of it. */
import { createContext, use } from "react";
import type { FieldProblem } from "@/api/generated";
import type { Filled } from "../plan/usePlan";
import { removeAt, setAt } from "../text/edit";
import { pointerOf } from "../text/pointer";
import { type Path, type SpecText, valueAt } from "../text/read";

export interface Form {
  spec: SpecText;
  /** Change the text by a function of it. */
  edit: (change: (text: string) => string) => void;
  /** What the service said last about the defaults; null until then. */
  filled: Filled | null;
  problems: readonly FieldProblem[];
}

export const FormContext = createContext<Form | null>(null);

export function useForm(): Form {
  const form = use(FormContext);
  if (form === null) throw new Error("a field stands outside of the form");
  return form;
}

export interface FieldState {
  value: unknown;
  set: (value: unknown) => void;
  remove: () => void;
  /** What the service takes where nothing is written; null where that is nothing, or not known yet. */
  fallback: string | null;
  problems: FieldProblem[];
}

export function useField(path: Path): FieldState {
  const { spec, edit, filled, problems } = useForm();
  const full = filled?.full;
  const around = valueAt(full, path.slice(0, -1));
  const order = typeof around === "object" && around !== null ? Object.keys(around) : [];
  return {
    value: valueAt(spec.value, path),
    set: (value) => edit((text) => setAt(text, path, value, order)),
    remove: () => edit((text) => removeAt(text, path)),
    // What was written then is no default, though it is in the full document too.
    fallback: valueAt(filled?.written, path) === undefined ? inWords(valueAt(full, path)) : null,
    problems: problemsAt(problems, path),
  };
}

/** Of this field, or of something inside it. */
export function problemsAt(problems: readonly FieldProblem[], path: Path): FieldProblem[] {
  const here = pointerOf(path);
  return problems.filter(({ pointer }) => pointer === here || pointer.startsWith(`${here}/`));
}

function inWords(value: unknown): string | null {
  if (value === undefined || value === null || typeof value === "object") return null;
  return String(value);
}
