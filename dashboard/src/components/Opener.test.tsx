import { act, fireEvent, screen } from "@testing-library/react";
import { lazy } from "react";
import { expect, it } from "vitest";
import { render } from "@/testing/render";
import { Opener } from "./Opener";

const load = () => import("./PopoverOf");
const PopoverOf = lazy(async () => ({ default: (await load()).PopoverOf }));

it("opens a part that is loaded then, names it, and gives the focus back when it closes", async () => {
  render(
    <Opener
      popup="dialog"
      load={load}
      opened={(opened) => (
        <PopoverOf {...opened}>
          <button type="button" onClick={opened.close}>
            Close
          </button>
        </PopoverOf>
      )}
    >
      Columns
    </Opener>,
  );
  const button = screen.getByRole("button", { name: "Columns" });
  expect(button.getAttribute("aria-expanded")).toBe("false");
  for (const close of [
    () => fireEvent.click(screen.getByText("Close")),
    () => fireEvent.keyDown(screen.getByText("Close"), { key: "Escape" }),
    () => fireEvent.click(button),
  ]) {
    fireEvent.click(button);
    const part = await screen.findByRole("dialog", { name: "Columns" });
    expect(button.getAttribute("aria-controls")).toBe(part.id);
    act(() => screen.getByText("Close").focus());
    close();
    expect(screen.queryByRole("dialog")).toBeNull();
    expect(document.activeElement).toBe(button);
  }
});
