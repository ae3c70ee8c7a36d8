import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, screen, waitFor } from "@testing-library/react";
import type { ReactNode } from "react";
import { beforeEach, expect, it, vi } from "vitest";
import { getJob, getJobSpec, listJobs } from "@/api/generated";
import { saveFile } from "@/lib/save-file";
import { aJob } from "@/testing/jobs";
import { render } from "@/testing/render";
import { ConfigurationTab } from "./ConfigurationTab";

vi.mock("@/lib/save-file", () => ({ saveFile: vi.fn() }));
vi.mock("@/api/generated", () => ({
  getJob: vi.fn(),
  getJobMetrics: vi.fn(),
  getJobSpec: vi.fn(),
  listJobAttempts: vi.fn(),
  listJobCheckpoints: vi.fn(),
  listJobEvents: vi.fn(),
  listJobs: vi.fn(),
}));
const navigate = vi.hoisted(() => vi.fn());
vi.mock("@tanstack/react-router", () => ({
  getRouteApi: () => ({ useNavigate: () => navigate }),
  Link: ({ search, children, ...more }: { search: object; children: ReactNode }) => (
    <a href={JSON.stringify(search)} aria-current={"aria-current" in more ? "true" : undefined}>
      {children}
    </a>
  ),
}));

const COMMIT = "3f2a".repeat(10);
const CODE = { git: "https://example.org/a.git", ref: "main" };
const JOB = aJob({ spec: { name: "gpt", code: CODE } });
const WHOLE = { name: "gpt", project: "default", code: { ...CODE, ref: COMMIT }, retry: { max: 3 } };

function show(isWhole: boolean, job = JOB, against?: string) {
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  render(
    <QueryClientProvider client={client}>
      <ConfigurationTab job={job} reference={job.id} isWhole={isWhole} against={against} />
    </QueryClientProvider>,
  );
}

const yaml = () => screen.getByTestId("spec-yaml");
const saved = () => vi.mocked(saveFile).mock.calls[0] ?? ["", new Blob()];

beforeEach(() => {
  vi.mocked(saveFile).mockReset();
  vi.mocked(getJobSpec).mockReset();
  vi.mocked(getJobSpec).mockResolvedValue({ data: { job_id: JOB.id, spec: WHOLE } } as never);
});

it("shows what was submitted, with nothing beside it", async () => {
  show(false);
  await waitFor(() =>
    expect(yaml().textContent).toBe("name: gpt\ncode:\n  git: https://example.org/a.git\n  ref: main\n"),
  );
  fireEvent.click(screen.getByRole("button", { name: "Download" }));
  expect(saved()[0]).toBe("gpt.yaml");
  expect(screen.getByRole("link", { name: "With every default" }).getAttribute("href")).toContain('"spec":"whole"');
});

it("sets apart in words what was not submitted, and leaves the words out of what is saved", async () => {
  show(true);
  await waitFor(() => expect(yaml().textContent).toContain("project: default"));
  const lines = [...yaml().children].map((line) => line.textContent?.trimEnd());
  expect(lines).toEqual([
    "name: gpt",
    "defaultproject: default",
    "code:",
    "  git: https://example.org/a.git",
    `settled  ref: ${COMMIT}\nsubmitted: main`,
    "defaultretry:",
    "default  max: 3",
  ]);
  fireEvent.click(screen.getByRole("button", { name: "Download" }));
  expect(saved()[0]).toBe("gpt.whole.yaml");
  expect(await saved()[1].text()).toBe(
    `name: gpt\nproject: default\ncode:\n  git: https://example.org/a.git\n  ref: ${COMMIT}\nretry:\n  max: 3\n`,
  );
});

it("says which commit a branch was", async () => {
  show(false);
  expect((await screen.findByText(COMMIT.slice(0, 12))).title).toBe(COMMIT);
  expect(screen.getByRole("row", { name: /Submitted as main/ })).toBeTruthy();
});

it("asks for nothing where the commit itself was submitted, or there is no repository", async () => {
  show(false, aJob({ spec: { code: { ...CODE, ref: COMMIT } } }));
  expect(await screen.findByText(COMMIT.slice(0, 12))).toBeTruthy();
  expect(screen.queryByText("Submitted as")).toBeNull();
  show(false, aJob({ spec: { code: { upload: "ab".repeat(32) } } }));
  expect(screen.getByRole("button", { name: "Copy the digest of the code" })).toBeTruthy();
  expect(getJobSpec).not.toHaveBeenCalled();
});

it("shows what differs from another job, as submitted and with every default", async () => {
  const other = { ...JOB, id: "other", name: "small", spec: { name: "small", code: CODE } };
  vi.mocked(getJob).mockResolvedValue({ data: other } as never);
  vi.mocked(getJobSpec).mockImplementation((({ path }: { path: { reference: string } }) => {
    const spec = path.reference === "other" ? { ...WHOLE, name: "small", retry: { max: 5 } } : WHOLE;
    return Promise.resolve({ data: { job_id: path.reference, spec } });
  }) as never);
  const changed = async () => {
    const lines = [...(await screen.findByTestId("diff")).children].map((line) => line.textContent?.trimEnd());
    return lines.filter((line) => line && /added|removed/.test(line));
  };
  show(false, JOB, "small");
  expect(await screen.findByRole("region", { name: "From small to gpt" })).toBeTruthy();
  expect(await changed()).toEqual(["− removed: name: small", "+ added: name: gpt"]);
  cleanup();
  show(true, JOB, "small");
  expect(await changed()).toEqual([
    "− removed: name: small",
    "+ added: name: gpt",
    "− removed:   max: 5",
    "+ added:   max: 3",
  ]);
});

it("suggests the newest jobs to compare with, and puts the selected one into the address", async () => {
  vi.mocked(listJobs).mockResolvedValue({ data: { items: [JOB, { ...JOB, id: "b", name: "small" }] } } as never);
  show(false);
  const field = screen.getByRole("combobox", { name: /^Job to compare with/ });
  fireEvent.focus(field);
  await waitFor(() => expect(document.querySelectorAll("datalist option")).toHaveLength(1));
  fireEvent.change(field, { target: { value: "b" } });
  fireEvent.click(screen.getByRole("button", { name: "Compare" }));
  const { search } = navigate.mock.calls[0]?.[0] ?? {};
  expect(search({ tab: "configuration" })).toEqual({ tab: "configuration", against: "b" });
});

it("leads to the jobs of the project and the label, and has the time limit with its origin", () => {
  const limit = { seconds: 86_400, source: "service" } as const;
  show(false, aJob({ labels: { team: "nlp" }, limit }));
  const leads = (name: string) => screen.getByRole("link", { name }).getAttribute("href");
  expect(leads("default")).toBe('{"project":"default"}');
  expect(leads("team=nlp")).toBe('{"label":"team=nlp"}');
  expect(screen.getByRole("row", { name: "Time limit 1 d, default of the service" })).toBeTruthy();
});
