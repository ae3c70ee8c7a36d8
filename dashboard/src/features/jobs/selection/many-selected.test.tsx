import { fireEvent, screen, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { VIEWER } from "@/testing/caller";
import { aJob } from "@/testing/jobs";
import { open, serve } from "@/testing/pages";
import { JobsPage } from "../JobsPage";
import { readJobsView } from "../view";

const page = (search = "") => open("/jobs", JobsPage, search, readJobsView);
const row = async (name: string) => (await screen.findByRole("link", { name })).closest("tr") as HTMLElement;

describe("selected jobs", () => {
  it("are cancelled as far as the caller may, and the others are named", async () => {
    const member = { ...VIEWER, name: "lea", rights_in: { default: ["job.read", "job.control_own"] } };
    const jobs = ["lea", "ben"].map((owner) => aJob({ id: owner, name: `of-${owner}`, owner, state: "queued" }));
    serve(({ path }) => ({ body: path === "/v1/session" ? member : { items: jobs, jobs: [] } }));
    page();
    fireEvent.click(within(await row("of-ben")).getByRole("checkbox"));
    expect(screen.getByText("1 job selected")).toBeTruthy();
    expect(screen.queryByRole("button", { name: /^Cancel/ })).toBeNull();
    expect(screen.queryByRole("link", { name: "Clone" })).toBeNull();
    fireEvent.click(within(await row("of-lea")).getByRole("checkbox"));
    fireEvent.click(screen.getByRole("button", { name: "Cancel 1 job" }));
    const dialog = await screen.findByRole("dialog");
    expect(dialog.textContent).toContain("1 more of the selected belongs to another person and stays.");
  });

  it("get labels and lose some, each by a request of its own, and refusals are named", async () => {
    const jobs = ["one", "two"].map((name) => aJob({ id: name, name, labels: { team: name, old: "" } }));
    const requests = serve(({ path, method }) => {
      if (method !== "PATCH") return { body: { items: jobs, jobs: [] } };
      if (path === "/v1/jobs/two") return { status: 422, body: { title: "Invalid", detail: "job two has 64 labels" } };
      return { body: { ...jobs[0], labels: { team: "nlp", mix: "a=b" } } };
    });
    page();
    await row("one");
    fireEvent.click(screen.getByRole("checkbox", { name: "Select all jobs on this page" }));
    fireEvent.click(screen.getByRole("button", { name: "Label 2 jobs" }));
    const dialog = within(await screen.findByRole("dialog"));
    const confirm = () => dialog.getByRole<HTMLButtonElement>("button", { name: "Label 2 jobs" });
    expect(confirm().disabled).toBe(true);
    fireEvent.change(dialog.getByRole("textbox"), { target: { value: "team=nlp\n mix = a=b\n" } });
    fireEvent.click(dialog.getByRole("checkbox", { name: "old: 2 jobs" }));
    expect(dialog.getByRole("checkbox", { name: "team: one, two · 2 jobs" })).toBeTruthy();
    fireEvent.click(confirm());
    expect(await dialog.findByText("1 job labelled, 1 refused.")).toBeTruthy();
    expect(dialog.getByText("refused: job two has 64 labels")).toBeTruthy();
    expect(dialog.getByText("team=nlp, mix=a=b")).toBeTruthy();
    const asked = requests.filter(({ method }) => method === "PATCH").map(({ path, body }) => [path, body]);
    const labels = { old: null, team: "nlp", mix: "a=b" };
    expect(asked).toEqual(["one", "two"].map((id) => [`/v1/jobs/${id}`, { labels }]));
  });

  it("are too many to compare from 201 on", async () => {
    const many = Array.from({ length: 201 }, (_, place) => aJob({ id: `${place}`, name: `job-${place}` }));
    serve((asked) => (asked.path === "/v1/jobs" ? { body: { items: many } } : { body: { jobs: [] } }));
    page();
    await row("job-0");
    fireEvent.click(screen.getByRole("checkbox", { name: "Select all jobs on this page" }));
    expect(screen.getByText("At most 200 can be compared")).toBeTruthy();
    fireEvent.click(within(await row("job-7")).getByRole("checkbox"));
    expect(screen.getByRole("link", { name: "Compare" })).toBeTruthy();
  });
});
