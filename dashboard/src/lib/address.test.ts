import { expect, it } from "vitest";
import { STATES } from "@/features/jobs/view";
import { unread } from "./address";

it.each([
  [{ state: "done" }, {}, ["state=done"]],
  [{ state: ["done", "failed"] }, { state: ["failed"] }, ["state=done"]],
  [{ zoom: "step:10.0:20" }, { zoom: "step:10:20" }, []],
  [{ project: { a: 1 }, owner: null }, {}, ['project={"a":1}', "owner=null"]],
  [{ sort: "-created", axis: "step", smoothing: 0, tab: "overview" }, {}, []],
  [{ state: [...STATES] }, {}, []],
  [{ node: "64" }, { node: "64" }, []],
])("of the address %j, read as %j, is left out: %j", (raw, view, left) => {
  expect(unread(raw, view)).toEqual(left);
});
