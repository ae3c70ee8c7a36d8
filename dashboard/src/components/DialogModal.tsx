/**
 * Frame of a dialog: a chunk of its own, because most tabs open none.
 *
 * Built from the modal's parts: its own header would be a second banner of the page to screen
 * readers.
 */
import type { ReactNode } from "react";
import { Modal } from "@/components/mantine";
import classes from "./Dialog.module.css";

const PARTS = { content: classes.content, body: classes.body, title: classes.title };

export interface DialogProps {
  title: string;
  close: () => void;
  children: ReactNode;
}

export function DialogModal({ title, close, children }: DialogProps) {
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
