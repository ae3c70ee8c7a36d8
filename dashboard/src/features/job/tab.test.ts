import { expect, it } from "vitest";
import { readJobTab } from "./tab";

it.each([
  [{}, {}],
  [{ tab: "nothing" }, {}],
  [
    { smoothing: 0.6, axis: "samples", log: "train/loss", line: "1-2" },
    { smoothing: 0.6, axis: "samples", log: "train/loss" },
  ],
  [
    { tab: "timeline", smoothing: 0.6, zoom: "step:1:9" },
    { tab: "timeline", smoothing: 0.6, zoom: "step:1:9" },
  ],
])("the address %j opens %j", (search, view) => {
  expect(readJobTab(search)).toEqual(view);
});

it("keeps the whole spec in the address of the configuration, and nowhere else", () => {
  expect(readJobTab({ tab: "configuration", spec: "whole" })).toEqual({ tab: "configuration", spec: "whole" });
  expect(readJobTab({ tab: "configuration", spec: "half" })).toEqual({ tab: "configuration" });
  expect(readJobTab({ tab: "timeline", spec: "whole" })).toEqual({ tab: "timeline" });
  expect(readJobTab({ tab: "overview", spec: "whole" })).toEqual({});
});

it("keeps the job that the configuration is compared with", () => {
  const view = { tab: "configuration", spec: "whole", against: "gpt" };
  expect(readJobTab(view)).toEqual(view);
  expect(readJobTab({ tab: "configuration", against: 7 })).toEqual({ tab: "configuration", against: "7" });
  expect(readJobTab({ tab: "configuration", against: "" })).toEqual({ tab: "configuration" });
  expect(readJobTab({ tab: "timeline", against: "gpt" })).toEqual({ tab: "timeline" });
});

it("keeps the filter in the address of the files, and nowhere else", () => {
  expect(readJobTab({ tab: "files", match: "*.pt" })).toEqual({ tab: "files", match: "*.pt" });
  expect(readJobTab({ tab: "files", match: 7 })).toEqual({ tab: "files", match: "7" });
  expect(readJobTab({ tab: "timeline", match: "*.pt" })).toEqual({ tab: "timeline" });
});

it("leaves out what is no part of a job's page", () => {
  expect(readJobTab({ tab: "gone" })).toEqual({});
});
