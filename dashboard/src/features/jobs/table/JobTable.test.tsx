import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { VIEWER } from "@/testing/caller";
import { aJob, PROGRESS } from "@/testing/jobs";
import { type Asked, open, serve } from "@/testing/pages";
import { JobsPage } from "../JobsPage";
import { readJobsView } from "../view";

const spec = (lr: number) => ({ train: { optimizer: { lr } } });
const JOBS = [
  aJob({ id: "1", name: "one", spec: spec(1), owner: "ada", labels: { team: "nlp" }, note: "the baseline" }),
  aJob({ id: "2", name: "two", spec: spec(2), owner: "ben", progress: { ...PROGRESS, latest: { "val/loss": 2 } } }),
];
const GROUPS = [
  { value: "ada", total: 3, states: { running: 2, failed: 1 }, gpus_in_use: 2, best: 1.5 },
  { value: null, total: 1, states: { queued: 1 }, gpus_in_use: 0 },
];

function answer({ path, method, query }: Asked) {
  if (path === "/v1/series") return { body: { jobs: [] } };
  if (method === "PATCH") return { body: JOBS[0] };
  const gone = query.getAll("columns").filter((name) => name.includes("gone"));
  if (gone.length > 0) {
    const errors = gone.map((value) => ({ pointer: "/query/columns", value, message: "no job has a field 'gone'" }));
    return { status: 422, body: { title: "Invalid", detail: "columns", status: 422, code: "invalid", errors } };
  }
  const values = Object.fromEntries(query.getAll("columns").map((name) => [name, 0.25]));
  const items = JOBS.map((job) => ({ ...job, values }));
  const grouped = query.has("group") ? { groups: GROUPS, groups_total: 2 } : {};
  const isOfOne = /owner:ada/.test(query.get("filter") ?? "");
  const totals = { states: { running: 2 }, gpus_in_use: 2, ...grouped };
  return { body: { items: isOfOne ? items.slice(0, 1) : items, next_cursor: null, total: isOfOne ? 3 : 4, totals } };
}

const page = (search = "") => open("/jobs", JobsPage, search, readJobsView);
const row = async (name: string) => (await screen.findByRole("link", { name })).closest("tr") as HTMLElement;
const heads = () => screen.getAllByRole("columnheader").map((head) => head.textContent?.replace(/[▲▼]/, ""));
const listings = (requests: Asked[]) => requests.filter(({ path }) => path === "/v1/jobs").map(({ query }) => query);

beforeEach(() => localStorage.clear());
afterEach(() => vi.unstubAllGlobals());

describe("the columns", () => {
  it("are those that tell the rows apart, without a request of their own", async () => {
    const requests = serve(answer);
    page();
    await row("one");
    expect(heads()).toEqual([
      ...["", "Name", "State", "Progress", "Left", "GPUs", "Node", "lr", "Owner", "Started", "Duration"],
    ]);
    expect(within(await row("two")).getByTitle("2")).toBeTruthy();
    expect(listings(requests).map((query) => query.getAll("columns"))).toEqual([[]]);
  });

  it("are chosen, and the address has them", async () => {
    const requests = serve(answer);
    const router = page("?columns=state,gpus");
    await row("one");
    expect(heads()).toEqual(["", "Name", "State", "GPUs"]);
    fireEvent.click(screen.getByRole("button", { name: /^Columns 2/ }));
    fireEvent.click(await screen.findByLabelText("Duration"));
    fireEvent.click(screen.getByRole("button", { name: "val/loss, lowest value" }));
    fireEvent.click(screen.getByLabelText("train.optimizer.lr"));
    const columns = "state,gpus,metric:val/loss:min,setting:train.optimizer.lr,duration";
    await waitFor(() => expect(router.state.location.search).toEqual({ columns }));
    await waitFor(() => expect(heads().slice(4)).toEqual(["val/loss lowest", "lr", "Duration"]));
    await waitFor(async () => expect((await row("one")).textContent).toContain("0.25"));
    expect(listings(requests).at(-1)?.getAll("columns")).toEqual(["metric:val/loss:min", "setting:train.optimizer.lr"]);
    fireEvent.click(screen.getByRole("button", { name: "Usual columns" }));
    await waitFor(() => expect(router.state.location.search).toEqual({}));
  });

  it("are moved by drags and by buttons, and address and default have their order", async () => {
    const requests = serve(answer);
    const router = page("?columns=state,gpus,lr,owner");
    await row("one");
    const head = (name: string) => screen.getByRole("columnheader", { name });
    const dataTransfer = { setData: () => {} };
    fireEvent.dragStart(head("Owner"), { dataTransfer });
    fireEvent.dragOver(head("GPUs"), { dataTransfer });
    fireEvent.drop(head("GPUs"), { dataTransfer });
    await waitFor(() => expect(heads().slice(2)).toEqual(["State", "Owner", "GPUs", "lr"]));
    fireEvent.click(screen.getByRole("button", { name: /^Columns/ }));
    for (const times of [1, 2, 3]) {
      const button = await screen.findByRole("button", { name: "Move State to the right" });
      fireEvent.click(button);
      await waitFor(() => expect(heads().indexOf("State")).toBe(2 + times));
      expect(document.activeElement).toBe(button);
    }
    expect(screen.getByRole("button", { name: "Move State to the right" }).getAttribute("aria-disabled")).toBe("true");
    expect(router.state.location.search).toEqual({ columns: "owner,gpus,lr,state" });
    expect(listings(requests).length).toBe(1);
    fireEvent.click(screen.getByRole("button", { name: "Make this my default" }));
    expect(JSON.parse(localStorage.getItem("lockstep.jobs") ?? "")).toEqual({ columns: "owner,gpus,lr,state" });
  });

  it("that no job has are left out, and named", async () => {
    serve(answer);
    const router = page("?columns=gpus,metric:gone:last");
    await row("one");
    expect(heads()).toEqual(["", "Name", "GPUs"]);
    expect(screen.getByRole("alert").textContent).toContain("Column metric:gone:last: no job has a field 'gone'");
    fireEvent.click(screen.getByRole("button", { name: "Leave it out" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ columns: "gpus" }));
    expect(screen.queryByRole("alert")).toBeNull();
  });

  it("become a default by the button alone, and not for a link", async () => {
    serve(answer);
    const first = page("?columns=gpus&sort=name");
    await row("one");
    expect(localStorage.length).toBe(0);
    fireEvent.click(screen.getByRole("button", { name: /^Columns/ }));
    fireEvent.click(await screen.findByRole("button", { name: "Make this my default" }));
    expect(localStorage.getItem("lockstep.jobs")).toBe('{"sort":"name","columns":"gpus"}');
    await first.navigate({ to: "/queue" });
    await first.navigate({ to: "/jobs" });
    await waitFor(() => expect(first.state.location.search).toEqual({ columns: "gpus", sort: "name" }));
  });

  it("of a link without columns are the usual ones, also for a person with a default", async () => {
    localStorage.setItem("lockstep.jobs", '{"columns":"gpus"}');
    serve(answer);
    const router = page();
    await row("one");
    expect(heads()).toContain("State");
    await waitFor(() => expect(router.state.location.search).toEqual({ columns: "usual" }));
  });
});

it("is sorted by the service, the other way round at the second press", async () => {
  const requests = serve(answer);
  const router = page();
  await row("one");
  const head = (name: string) => screen.getByRole("columnheader", { name: new RegExp(`^${name}`) });
  expect(head("Started").getAttribute("aria-sort")).toBeNull();
  fireEvent.click(within(head("GPUs")).getByRole("button"));
  await waitFor(() => expect(router.state.location.search).toEqual({ sort: "-gpus" }));
  await waitFor(() => expect(head("GPUs").getAttribute("aria-sort")).toBe("descending"));
  fireEvent.click(within(head("GPUs")).getByRole("button"));
  await waitFor(() => expect(router.state.location.search).toEqual({ sort: "gpus" }));
  fireEvent.click(within(head("Name")).getByRole("button"));
  await waitFor(() => expect(router.state.location.search).toEqual({ sort: "name" }));
  await waitFor(() =>
    expect(listings(requests).map((query) => query.get("sort"))).toEqual(["-created", "-gpus", "gpus", "name"]),
  );
});

it("has a row for each group with the numbers of all its jobs, and its jobs once it is opened", async () => {
  const requests = serve(answer);
  const router = page("?group=owner&sort=-metric:val/loss:last&columns=state,gpus,metric:val/loss:last");
  const group = (await screen.findByRole("button", { name: /ada/ })).closest("tr") as HTMLTableRowElement;
  expect([...group.cells].map((cell) => cell.textContent)).toEqual([
    "",
    "▸ada 3 jobs",
    "▶2 running✕1 failed",
    "2",
    "1.5",
  ]);
  expect(screen.queryByRole("link", { name: "one" })).toBeNull();
  expect(screen.getByText("2 groups, 4 jobs")).toBeTruthy();
  fireEvent.click(within(group).getByRole("button"));
  await row("one");
  expect(router.state.location.search).toMatchObject({ open: "ada" });
  expect(listings(requests).at(-1)?.get("filter")).toBe("owner:ada");
  expect(listings(requests).at(-1)?.has("group")).toBe(false);
  const rest = screen.getByRole("link", { name: "2 more: show all 3 jobs" });
  expect(new URLSearchParams(rest.getAttribute("href")?.split("?")[1]).get("filter")).toBe("owner:ada");
  // No filter names the jobs without an owner.
  expect(screen.getByText("without a value").closest("button")).toBeNull();
  fireEvent.change(screen.getByLabelText("Group"), { target: { value: "label:team" } });
  await waitFor(() => expect(router.state.location.search).toMatchObject({ group: "label:team" }));
  expect(router.state.location.search).not.toHaveProperty("open");
  fireEvent.click(await screen.findByRole("button", { name: /without a value/ }));
  await waitFor(() => expect(listings(requests).at(-1)?.get("filter")).toBe("label:team!=*"));
});

describe("a mark of a job", () => {
  it("is a star that one press gives", async () => {
    const requests = serve(answer);
    page();
    fireEvent.click(within(await row("one")).getByRole("button", { name: "Star one" }));
    await waitFor(() => expect(requests.some(({ method }) => method === "PATCH")).toBe(true));
    expect(requests.find(({ method }) => method === "PATCH")).toMatchObject({
      path: "/v1/jobs/1",
      body: { starred: true },
    });
  });

  it("is a label or a note that is edited in place", async () => {
    const requests = serve(answer);
    page();
    fireEvent.click(within(await row("one")).getByRole("button", { name: "Labels and note of one" }));
    const labels = await screen.findByLabelText(/^Labels, one in a line/);
    expect((labels as HTMLTextAreaElement).value).toBe("team=nlp");
    fireEvent.change(labels, { target: { value: "team=vision\nmix" } });
    fireEvent.change(screen.getByLabelText(/^Note/), { target: { value: "" } });
    fireEvent.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() => expect(requests.some(({ method }) => method === "PATCH")).toBe(true));
    expect(requests.find(({ method }) => method === "PATCH")?.body).toEqual({
      labels: { team: "vision", mix: "" },
      note: "",
    });
    await waitFor(() => expect(screen.queryByLabelText(/^Note/)).toBeNull());
  });

  it("is not offered to those who may not give it", async () => {
    serve((asked) => (asked.path === "/v1/session" ? { body: VIEWER } : answer(asked)));
    page("?owner=*");
    const one = await row("one");
    expect(within(one).queryByRole("button", { name: /Star|Labels/ })).toBeNull();
    expect(within(one).getByRole("img", { name: "Note: the baseline" })).toBeTruthy();
  });
});

it("selects all jobs that match, also of other pages, and lists them again before it cancels them", async () => {
  const requests = serve(answer);
  page("?filter=gpt");
  await row("one");
  fireEvent.click(screen.getByRole("checkbox", { name: "Select all jobs on this page" }));
  fireEvent.click(screen.getByRole("button", { name: "Select all 4" }));
  expect(screen.getByText("All 4 jobs that match gpt selected")).toBeTruthy();
  const before = listings(requests).length;
  fireEvent.click(screen.getByRole("button", { name: "Cancel …" }));
  const dialog = await screen.findByRole("dialog");
  expect(within(dialog).getByRole("button", { name: "Cancel 2 jobs" })).toBeTruthy();
  expect(listings(requests)[before]?.get("limit")).toBe("200");
  fireEvent.click(within(dialog).getByRole("button", { name: "Keep" }));
  fireEvent.click(within(await row("one")).getByRole("checkbox"));
  await waitFor(() => expect(screen.getByText("1 job selected")).toBeTruthy());
});

it("has two lines for each job in a narrow window", async () => {
  vi.stubGlobal("matchMedia", (media: string) => ({
    ...{ matches: media.includes("700px"), media, addEventListener: () => {}, removeEventListener: () => {} },
    ...{ addListener: () => {}, removeListener: () => {} },
  }));
  serve(answer);
  page();
  const card = (await screen.findByRole("link", { name: "two" })).closest("li") as HTMLElement;
  for (const words of ["running", "50 %", "1 GPU", "1 min 30 s"]) expect(card.textContent).toContain(words);
  expect(screen.queryByRole("table")).toBeNull();
  fireEvent.click(within(card).getByRole("checkbox"));
  expect(screen.getByText("1 job selected")).toBeTruthy();
});
