/** Popover of a button of the page (`Opener`). */
import { type ReactNode, useLayoutEffect } from "react";
import { Popover } from "@/components/mantine";
import { Anchor, type Opened } from "./Opener";

interface PopoverOfProps extends Opened {
  position?: "bottom" | "bottom-end";
  children: ReactNode;
}

export function PopoverOf({ id, button, close, position = "bottom", children }: PopoverOfProps) {
  useFocusBack(id, button);
  return (
    <Popover
      id={id}
      opened
      onChange={(isOpen) => isOpen || close()}
      position={position}
      trapFocus
      transitionProps={{ duration: 0 }}
      width={320}
    >
      <Popover.Target>
        <Anchor of={button} />
      </Popover.Target>
      <Popover.Dropdown>{children}</Popover.Dropdown>
    </Popover>
  );
}

/** Gives the focus back to the button, unless it has gone elsewhere. */
export function useFocusBack(id: string, button: HTMLElement) {
  useLayoutEffect(
    () => () => {
      const focused = document.activeElement;
      const isHere = document.getElementById(`${id}-dropdown`)?.contains(focused) ?? false;
      if (isHere || focused === null || focused === document.body) button.focus({ preventScroll: true });
    },
    [id, button],
  );
}
