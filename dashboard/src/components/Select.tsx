/** Choice of one of a few words. The browser's own list opens: it works by keys and on a telephone. */
import type { ComponentProps } from "react";
import type { Look } from "./Button";
import classes from "./controls.module.css";

type SelectProps = Omit<ComponentProps<"select">, "size"> & Pick<Look, "size">;

export function Select({ size = "md", className, ...props }: SelectProps) {
  return <select className={[classes.field, className].filter(Boolean).join(" ")} data-size={size} {...props} />;
}
