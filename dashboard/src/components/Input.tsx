/** Field for a line of text or a number, in the look of the buttons beside it. */
import type { ComponentProps } from "react";
import type { Look } from "./Button";
import classes from "./controls.module.css";

type InputProps = Omit<ComponentProps<"input">, "size"> & Pick<Look, "size">;

export function Input({ size = "md", className, ...props }: InputProps) {
  return <input className={[classes.field, className].filter(Boolean).join(" ")} data-size={size} {...props} />;
}
