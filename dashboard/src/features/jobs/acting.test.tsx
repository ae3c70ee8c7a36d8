import { focusManager } from "@tanstack/react-query";
import { act, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { answer, CURSOR, JOBS, page, press, row } from "@/testing/listed-jobs";
import { serve } from "@/testing/pages";

beforeEach(() => {
  Element.prototype.scrollIntoView = vi.fn();
});
afterEach(() => vi.unstubAllGlobals());

describe("keys", () => {
  it("move the cursor, choose the row and open it", async () => {
    serve(answer);
    const router = page();
    await row("waits");
    press("j");
    press("j");
    expect((await row("runs")).getAttribute("aria-current")).toBe("true");
    press("x");
    expect(within(await row("runs")).getByRole<HTMLInputElement>("checkbox").checked).toBe(true);
    press("k");
    press("Enter");
    await waitFor(() => expect(router.state.location.pathname).toBe("/jobs/1"));
  });

  it("compare the selected jobs, go to what can be done with them, and clear them", async () => {
    serve(answer);
    const router = page();
    await row("waits");
    for (const key of ["j", "x", "c"]) press(key);
    expect(router.state.location.pathname).toBe("/jobs");
    press("a");
    expect(document.activeElement?.textContent).toBe("Cancel 1 job");
    press("Escape");
    expect(screen.queryByText("1 job selected")).toBeNull();
    for (const key of ["x", "j", "x", "c"]) press(key);
    await waitFor(() => expect(router.state.location.pathname).toBe("/compare"));
    expect(router.state.location.search).toEqual({ jobs: ["1", "2"] });
  });
});

describe("selected jobs", () => {
  it("are only those that the filters show: what is hidden is not acted on", async () => {
    const pages: Record<string, { items: typeof JOBS; next_cursor: string | null }> = {
      all: { items: JOBS.slice(0, 2), next_cursor: CURSOR },
      second: { items: JOBS.slice(2), next_cursor: null },
      found: { items: JOBS.slice(1, 2), next_cursor: null },
    };
    serve((asked) => {
      if (asked.path !== "/v1/jobs") return answer(asked);
      const { query } = asked;
      const found = pages[query.has("filter") ? "found" : query.has("cursor") ? "second" : "all"];
      return { body: { ...found, total: found?.items.length } };
    });
    const router = page();
    await row("waits");
    fireEvent.click(screen.getByRole("checkbox", { name: /all jobs on this page/ }));
    const bar = () => screen.queryByRole("region", { name: "Selected jobs" })?.textContent;
    expect(bar()).toContain("2 jobs selected");
    // Another page: none of its rows is selected, and those of the first are dropped.
    await act(() => router.navigate({ to: "/jobs", search: { cursor: CURSOR } }));
    await row("broke");
    await waitFor(() => expect(bar()).toBeUndefined());
    await act(() => router.navigate({ to: "/jobs", search: {} }));
    await row("waits");
    expect(bar()).toBeUndefined();
    fireEvent.click(screen.getByRole("checkbox", { name: /all jobs on this page/ }));
    await act(() => router.navigate({ to: "/jobs", search: { filter: "runs" } }));
    await waitFor(() => expect(screen.queryByRole("link", { name: "waits" })).toBeNull());
    expect(bar()).toBeUndefined();
    fireEvent.click(screen.getByRole("checkbox", { name: /all jobs on this page/ }));
    expect(bar()).toContain("1 job selected");
    // It does not match any more: it leaves the list, and the selection with it.
    pages.found = { items: [], next_cursor: null };
    act(() => {
      focusManager.setFocused(false);
      focusManager.setFocused(true);
    });
    await waitFor(() => expect(bar()).toBeUndefined());
    pages.found = { items: JOBS.slice(1, 2), next_cursor: null };
    act(() => {
      focusManager.setFocused(false);
      focusManager.setFocused(true);
    });
    await row("runs");
    expect(bar()).toBeUndefined();
  });

  it("are cancelled after a question, and each answer is told", async () => {
    const requests = serve(answer);
    page();
    await row("waits");
    fireEvent.click(screen.getByRole("checkbox", { name: "Select all jobs on this page" }));
    // The third one has ended already.
    fireEvent.click(screen.getByRole("button", { name: "Cancel 2 jobs" }));
    const dialog = await screen.findByRole("dialog");
    expect(requests.filter((asked) => asked.method === "POST")).toEqual([]);
    fireEvent.click(within(dialog).getByRole("button", { name: "Cancel 2 jobs" }));
    expect(await within(dialog).findByText("1 job cancelled, 1 refused.")).toBeTruthy();
    expect(within(dialog).getByText("refused: job 2 has already succeeded")).toBeTruthy();
    expect(requests.filter((asked) => asked.method === "POST").map((asked) => asked.path)).toEqual([
      "/v1/jobs/1/cancel",
      "/v1/jobs/2/cancel",
    ]);
  });

  it("are deleted as far as they have ended, and those that have not are named", async () => {
    const requests = serve(answer);
    page();
    await row("waits");
    fireEvent.click(screen.getByRole("checkbox", { name: "Select all jobs on this page" }));
    fireEvent.click(screen.getByRole("button", { name: "Delete 1 job" }));
    const dialog = await screen.findByRole("dialog");
    expect(dialog.textContent).toContain("This cannot be undone. 2 more of the selected have not ended and stay.");
    expect(requests.filter((asked) => asked.method === "DELETE")).toEqual([]);
    fireEvent.click(within(dialog).getByRole("button", { name: "Delete 1 job" }));
    expect(await within(dialog).findByText("1 job deleted.")).toBeTruthy();
    expect(requests.filter((asked) => asked.method === "DELETE").map((asked) => asked.path)).toEqual(["/v1/jobs/3"]);
    fireEvent.click(within(dialog).getByRole("button", { name: "Close" }));
    await waitFor(() => expect(screen.queryByText(/selected/)).toBeNull());
  });

  it("offer only what can be done with them", async () => {
    serve(answer);
    page();
    fireEvent.click(within(await row("broke")).getByRole("checkbox"));
    expect(screen.queryByRole("button", { name: /^Cancel/ })).toBeNull();
    fireEvent.click(within(await row("broke")).getByRole("checkbox"));
    fireEvent.click(within(await row("waits")).getByRole("checkbox"));
    expect(screen.queryByRole("button", { name: /^Delete/ })).toBeNull();
  });

  it("are compared from two on, and cloned one at a time", async () => {
    serve(answer);
    page();
    fireEvent.click(within(await row("waits")).getByRole("checkbox"));
    expect(screen.getByRole("link", { name: "Clone" }).getAttribute("href")).toBe("/submit?clone=%221%22");
    expect(screen.queryByRole("link", { name: "Compare" })).toBeNull();
    fireEvent.click(within(await row("broke")).getByRole("checkbox"));
    expect(screen.queryByRole("link", { name: "Clone" })).toBeNull();
    const address = screen.getByRole("link", { name: "Compare" }).getAttribute("href") ?? "";
    expect(JSON.parse(new URLSearchParams(address.split("?")[1]).get("jobs") ?? "")).toEqual(["1", "3"]);
  });

  it("give their ids to the clipboard, a line each", async () => {
    serve(answer);
    const writeText = vi.fn().mockResolvedValue(undefined);
    Object.defineProperty(navigator, "clipboard", { value: { writeText }, configurable: true });
    page();
    fireEvent.click(within(await row("waits")).getByRole("checkbox"));
    fireEvent.click(within(await row("broke")).getByRole("checkbox"));
    fireEvent.click(screen.getByRole("button", { name: "Copy the ids" }));
    expect(await screen.findByText("copied")).toBeTruthy();
    expect(writeText).toHaveBeenCalledWith("1\n3");
    Reflect.deleteProperty(navigator, "clipboard");
  });
});
