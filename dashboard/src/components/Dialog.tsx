/**
 * Confirmation dialog, with its answers at the foot.
 *
 * Built from the modal's parts: its own header would be a second banner of the page to screen
 * readers.
 */
import { Modal } from "@mantine/core";
import type { ReactNode } from "react";
import classes from "./Dialog.module.css";

const PARTS = { content: classes.content, body: classes.body, title: classes.title };

export function Dialog({ title, close, children }: { title: string; close: () => void; children: ReactNode }) {
  return (
    <Modal.Root opened onClose={close} centered classNames={PARTS}>
      <Modal.Overlay />
      <Modal.Content>
        <Modal.Body>
          <Modal.Title>{title}</Modal.Title>
          {children}
        </Modal.Body>
      </Modal.Content>
    </Modal.Root>
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
    <button
      type="button"
      className={classes.answer}
      data-kind={kind}
      data-autofocus={hasFocus || undefined}
      disabled={isBusy}
      onClick={onClick}
    >
      {children}
    </button>
  );
}
