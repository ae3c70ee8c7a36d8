import { fireEvent, screen, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { aJob } from "@/testing/jobs";
import { open, serve } from "@/testing/pages";
import { JobsPage } from "./JobsPage";
import { readJobsView } from "./view";

const page = (search = "") => open("/jobs", JobsPage, search, readJobsView);
const row = async (name: string) => (await screen.findByRole("link", { name })).closest("tr") as HTMLElement;

describe("selected jobs", () => {
  it("are too many to compare from 21 on", async () => {
    const many = Array.from({ length: 21 }, (_, place) => aJob({ id: `${place}`, name: `job-${place}` }));
    serve((asked) => (asked.path === "/v1/jobs" ? { body: { items: many } } : { body: { jobs: [] } }));
    page();
    await row("job-0");
    fireEvent.click(screen.getByRole("checkbox", { name: "Select all jobs on this page" }));
    expect(screen.getByText("At most 20 can be compared")).toBeTruthy();
    fireEvent.click(within(await row("job-7")).getByRole("checkbox"));
    expect(screen.getByRole("link", { name: "Compare" })).toBeTruthy();
  });
});
