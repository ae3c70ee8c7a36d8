import { fireEvent, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { render } from "@/testing/render";
import { CopyButton } from "./CopyButton";

afterEach(() => {
  Reflect.deleteProperty(navigator, "clipboard");
  Reflect.deleteProperty(document, "execCommand");
});

it("copies through the browser's clipboard", async () => {
  const writeText = vi.fn().mockResolvedValue(undefined);
  Object.defineProperty(navigator, "clipboard", { value: { writeText }, configurable: true });
  render(<CopyButton text="01a2" what="id" />);
  fireEvent.click(screen.getByRole("button", { name: "Copy the id" }));
  expect(await screen.findByText("copied")).toBeTruthy();
  expect(writeText).toHaveBeenCalledWith("01a2");
});

it("copies what is selected where the page has no clipboard, and leaves nothing behind", async () => {
  let selected = "";
  document.execCommand = () => {
    const field = document.activeElement as HTMLTextAreaElement;
    selected = field.value.slice(field.selectionStart, field.selectionEnd);
    return true;
  };
  render(<CopyButton text={"01a2\n01a3"} what="ids" label="Copy the ids" />);
  fireEvent.click(screen.getByRole("button", { name: "Copy the ids" }));
  expect(await screen.findByText("copied")).toBeTruthy();
  expect(selected).toBe("01a2\n01a3");
  expect(document.querySelector("textarea")).toBeNull();
});

it("says that it could not", async () => {
  render(<CopyButton text="01a2" what="id" />);
  fireEvent.click(screen.getByRole("button", { name: "Copy the id" }));
  expect(await screen.findByText("not copied")).toBeTruthy();
});
