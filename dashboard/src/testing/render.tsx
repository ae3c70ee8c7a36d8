/** `render` of the testing library, inside of Mantine: each button asks for it. */
import { MantineProvider } from "@mantine/core";
import { render as renderBare } from "@testing-library/react";
import type { ReactNode } from "react";

export function render(shown: ReactNode) {
  return renderBare(shown, { wrapper: InMantine });
}

export function InMantine({ children }: { children: ReactNode }) {
  return <MantineProvider env="test">{children}</MantineProvider>;
}
