/** Button that opens a menu or a popover, whose code is loaded when the button is first pointed at, focused or pressed. */
import { type ReactNode, type Ref, Suspense, useId, useImperativeHandle, useState } from "react";
import { Button, type ButtonProps } from "./Button";

/** What the opened part has to know. */
export interface Opened {
  /** Id of the button. That of the part has `-dropdown` behind it, as in Mantine. */
  id: string;
  button: HTMLElement;
  close: () => void;
}

interface OpenerProps extends ButtonProps {
  popup: "menu" | "dialog";
  load: () => Promise<unknown>;
  opened: (opened: Opened) => ReactNode;
}

export function Opener({ popup, load, opened, ...props }: OpenerProps) {
  const id = useId();
  const [button, setButton] = useState<HTMLButtonElement | null>(null);
  const prepare = () => void load().catch(() => {}); // told when it is opened
  return (
    <>
      <Button
        id={id}
        aria-haspopup={popup}
        aria-expanded={button !== null}
        aria-controls={button === null ? undefined : `${id}-dropdown`}
        onPointerEnter={prepare}
        onFocus={prepare}
        onClick={({ currentTarget }) => setButton(button === null ? currentTarget : null)}
        {...props}
      />
      {button === null ? null : (
        <Suspense fallback={null}>{opened({ id, button, close: () => setButton(null) })}</Suspense>
      )}
    </>
  );
}

/** Makes a button that is already there the target of a part of Mantine; without an element of its own. */
export function Anchor({ of, ref }: { of: HTMLElement; ref?: Ref<HTMLElement> }) {
  useImperativeHandle(ref, () => of, [of]);
  return null;
}
