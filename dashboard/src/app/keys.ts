/** Keys. A page declares its own with `useKeys`; those of the shell work everywhere. None fires while one types. */
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { usePages } from "./pages";

export interface Shortcut {
  keys: string;
  does: string;
}

/**
 * Shortcuts that `?` lists beside those that open a page. Pages list their own keys here, which keeps the help complete.
 * `of` is the address of a page that not every caller can use.
 */
export const SHORTCUTS: { where: string; of?: string; shortcuts: Shortcut[] }[] = [
  {
    where: "Everywhere",
    shortcuts: [
      { keys: "?", does: "show these keys" },
      { keys: "/", does: "search on this page" },
      { keys: "Esc", does: "close, or leave a field" },
    ],
  },
  {
    where: "Lists of jobs",
    shortcuts: [
      { keys: "j", does: "next row" },
      { keys: "k", does: "previous row" },
      { keys: "x", does: "select the row" },
      { keys: "Enter", does: "open the row" },
      { keys: "c", does: "compare the selected jobs" },
      { keys: "a", does: "go to the actions on them" },
      { keys: "Esc", does: "clear the selection" },
    ],
  },
  {
    where: "A chart that has the focus",
    shortcuts: [
      { keys: "← →", does: "read the next point; ten with Shift" },
      { keys: "↑ ↓", does: "read another job" },
      { keys: "Home End", does: "read the first, the last point" },
      { keys: "+ − 0", does: "zoom" },
      { keys: "Enter", does: "show it on the whole screen" },
    ],
  },
  {
    where: "A chart on the whole screen",
    shortcuts: [
      { keys: "+", does: "zoom in" },
      { keys: "-", does: "zoom out" },
      { keys: "← →", does: "earlier, later" },
      { keys: "0", does: "see all of it" },
    ],
  },
  { where: "A job", shortcuts: [{ keys: "l", does: "show or hide the log" }] },
  { where: "Logs", shortcuts: [{ keys: "f", does: "keep to the newest line, or pause" }] },
  { where: "New job", of: "/submit", shortcuts: [{ keys: "Ctrl Enter", does: "submit" }] },
];

const SECOND_KEY_MS = 1_000;

/** Call `handlers[key]` for keys that are pressed outside of fields, without modifiers. */
export function useKeys(handlers: Record<string, (event: KeyboardEvent) => void>): void {
  const current = useRef(handlers);
  current.current = handlers;
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      current.current[event.key]?.(event);
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
}

export function useGlobalKeys({ help }: { help: () => void }): void {
  const navigate = useNavigate();
  const pages = usePages();
  const armed = useRef(0);
  const go = (event: KeyboardEvent) => {
    const page = pages.find(({ key }) => key === event.key);
    if (page === undefined || Date.now() - armed.current > SECOND_KEY_MS) return;
    armed.current = 0;
    event.stopImmediatePropagation();
    void navigate({ to: page.to });
  };
  useKeys({
    "?": help,
    g: () => {
      armed.current = Date.now();
    },
    "/": (event) => {
      const field = document.querySelector<HTMLInputElement>("[data-page-search]");
      if (field === null) return;
      event.preventDefault();
      field.focus();
    },
    ...Object.fromEntries(pages.flatMap(({ key }) => (key === undefined ? [] : [[key, go]]))),
  });
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable='true']") !== null;
}
