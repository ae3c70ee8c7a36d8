/** The editor in the pages' colours, light and dark by the same variables. Keys by weight, comments by tone: no new colour. */
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const theme = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--panel)", fontSize: "0.8125rem", height: "100%" },
  // The panel around it shows the focus: the gutter would cover a part of an outline here.
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mantine-font-family-monospace)", lineHeight: "1.6" },
  ".cm-content": { padding: "8px 0", caretColor: "var(--ink)" },
  ".cm-line": { padding: "0 12px 0 4px" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { color: "var(--soft)", backgroundColor: "var(--panel)", border: "none" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--sunk) 60%, transparent)" },
  ".cm-activeLineGutter": { backgroundColor: "transparent", color: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--mark-ground)",
  },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    backgroundColor: "var(--bad-ground)",
    textDecoration: "underline wavy var(--bad)",
    textUnderlineOffset: "3px",
  },
  ".cm-lintPoint-error:after": { borderBottomColor: "var(--bad)" },
  ".cm-gutter-lint": { width: "16px" },
  ".cm-lint-marker": { width: "12px", height: "auto" },
  ".cm-lint-marker-error": { content: "normal", color: "var(--bad)" },
  ".cm-lint-marker-error::before": { content: '"✕"' },
  ".cm-tooltip": { color: "var(--ink)", backgroundColor: "var(--panel)", border: "1px solid var(--line-strong)" },
  ".cm-diagnostic": { padding: "4px 8px", maxWidth: "32rem" },
  ".cm-diagnostic-error": { borderLeft: "3px solid var(--bad)" },
});

const highlight = HighlightStyle.define([
  { tag: tags.definition(tags.propertyName), fontWeight: "600" },
  { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator, tags.squareBracket, tags.brace], color: "var(--soft)" },
]);

export const editorLook = [theme, syntaxHighlighting(highlight)];
