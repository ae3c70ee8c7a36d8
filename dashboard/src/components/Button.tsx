/**
 * The button of all pages: Mantine's, with looks that are named as Mantine names its own.
 *
 * Mantine's `Button` would add 4 KB more to the code before the first paint: decision 42 has the figures.
 */
import { UnstyledButton } from "@mantine/core";
import type { ComponentProps } from "react";
import "@mantine/core/styles/UnstyledButton.layer.css";
import classes from "./controls.module.css";

export interface Look {
  /** `unstyled` is part of a table, a list or a text, and has its look from there. */
  variant?: "default" | "filled" | "outline" | "subtle" | "link" | "unstyled";
  /** 32, 28 or 24 px. */
  size?: "md" | "sm" | "xs";
  isDanger?: boolean;
}

export interface ButtonProps extends ComponentProps<"button">, Look {
  /** While what it asked for is under way: it cannot be pressed again. */
  loading?: boolean;
}

export function Button({ variant, size, isDanger, className, loading, disabled, ...props }: ButtonProps) {
  return (
    <UnstyledButton
      {...looking({ variant, size, isDanger, className })}
      aria-busy={loading || undefined}
      disabled={loading || disabled}
      {...props}
    />
  );
}

/** For a link that looks like a button. */
export function looking({ variant = "default", size = "md", isDanger, className }: Look & { className?: string }) {
  const isBare = variant === "unstyled";
  return {
    className: [isBare ? classes.bare : classes.button, className].filter(Boolean).join(" "),
    "data-variant": variant,
    "data-size": size,
    "data-danger": isDanger || undefined,
  };
}
