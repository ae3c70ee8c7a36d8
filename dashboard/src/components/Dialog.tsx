/** Confirmation dialog, with its answers at the foot. */
import { lazy, type ReactNode, Suspense } from "react";
import { Button } from "./Button";
import classes from "./Dialog.module.css";
import type { DialogProps } from "./DialogModal";

const DialogModal = lazy(async () => ({ default: (await import("./DialogModal")).DialogModal }));

export function Dialog(props: DialogProps) {
  return (
    <Suspense fallback={null}>
      <DialogModal {...props} />
    </Suspense>
  );
}

export function DialogFoot({ children }: { children: ReactNode }) {
  return <div className={classes.foot}>{children}</div>;
}

interface AnswerProps {
  /**
   * Kind of the confirming answer; `danger` if the action cannot be undone. The other answers
   * change nothing.
   */
  kind?: "main" | "danger";
  isBusy?: boolean;
  hasFocus?: boolean;
  onClick: () => void;
  children: ReactNode;
}

export function DialogAnswer({ kind, isBusy, hasFocus, onClick, children }: AnswerProps) {
  return (
    <Button
      variant={kind === undefined ? "default" : "filled"}
      isDanger={kind === "danger"}
      data-autofocus={hasFocus || undefined}
      disabled={isBusy}
      onClick={onClick}
    >
      {children}
    </Button>
  );
}
