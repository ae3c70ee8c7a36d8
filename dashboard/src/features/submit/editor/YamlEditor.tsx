/** The YAML, with the lines marked that the service refuses. CodeMirror, in a chunk of its own that is loaded after the page. */
import { yaml } from "@codemirror/lang-yaml";
import { indentUnit } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState, Prec, Transaction } from "@codemirror/state";
import { EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { minimalSetup } from "codemirror";
import { type Ref, useEffect, useImperativeHandle, useRef } from "react";
import type { EditorHandle, Mark } from "./handle";
import { editorLook } from "./look";

interface Props {
  text: string;
  onChange: (text: string) => void;
  marks: readonly Mark[];
  label: string;
  ref?: Ref<EditorHandle>;
}

export function YamlEditor({ text, onChange, marks, label, ref }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const tell = useRef(onChange);
  tell.current = onChange;
  const first = useRef({ text, label });

  useEffect(() => {
    if (place.current === null) return;
    const made = new EditorView({
      parent: place.current,
      state: EditorState.create({
        doc: first.current.text,
        extensions: [
          // The page submits on this key; without this, CodeMirror would also add a line.
          Prec.highest(keymap.of([{ key: "Mod-Enter", run: () => true }])),
          minimalSetup,
          lineNumbers(),
          lintGutter(),
          highlightActiveLine(),
          yaml(),
          indentUnit.of("  "),
          editorLook,
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": first.current.label, tabindex: "0" }),
          EditorView.updateListener.of((update) => {
            const isTyped = update.transactions.some((change) => change.annotation(Transaction.remote) !== true);
            if (update.docChanged && isTyped) tell.current(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = made;
    return () => made.destroy();
  }, []);

  useEffect(() => {
    const made = view.current;
    const former = made?.state.doc.toString();
    if (made == null || former === undefined || former === text) return;
    // Only what differs is put in, so that cursor, scroll and undo stay where they are.
    const shorter = Math.min(former.length, text.length);
    let head = 0;
    while (head < shorter && former[head] === text[head]) head += 1;
    let tail = 0;
    while (tail < shorter - head && former.at(-1 - tail) === text.at(-1 - tail)) tail += 1;
    made.dispatch({
      changes: { from: head, to: former.length - tail, insert: text.slice(head, text.length - tail) },
      annotations: Transaction.remote.of(true),
    });
  }, [text]);

  useEffect(() => {
    const made = view.current;
    if (made === null) return;
    const length = made.state.doc.length;
    const diagnostics = marks.map(({ from, to, message }) => ({
      from: Math.min(from, length),
      to: Math.min(Math.max(to, from), length),
      message,
      severity: "error" as const,
    }));
    made.dispatch(setDiagnostics(made.state, diagnostics));
  }, [marks]);

  useImperativeHandle(ref, () => ({
    reveal: (at) => {
      const made = view.current;
      if (made === null) return;
      made.dispatch({ selection: { anchor: Math.min(at, made.state.doc.length) }, scrollIntoView: true });
      made.focus();
    },
  }));

  return <div ref={place} data-testid="yaml" />;
}
