import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { PlanView } from "@/api/generated";
import { render } from "@/testing/render";
import { readText } from "../text/read";
import { PlanPanel } from "./PlanPanel";

const SCRIPT: PlanView = {
  plan: null,
  sentence: null,
  spec: { resources: { gpus: 2 } },
  placement: ["node-a"],
  queue: null,
  retries: {
    again: ["killed"],
    not_counted: ["preempted"],
    never: ["user_error"],
    max: 3,
    sentences: ["started again: after killed", "not started again: after user_error"],
  },
};

function show(view: PlanView) {
  const planned = { view, isOld: false, error: null, problems: [] };
  render(
    <QueryClientProvider client={new QueryClient()}>
      <PlanPanel planned={planned as never} spec={readText("kind: script")} />
    </QueryClientProvider>,
  );
}

it("says after which ends a script is started again", () => {
  show(SCRIPT);
  expect(screen.getByText("Retries").nextSibling?.textContent).toBe(
    "started again: after killednot started again: after user_error",
  );
});

it("says the time limit with its origin, and the warnings", () => {
  show({ ...SCRIPT, limit: { seconds: 86_400, source: "service" }, warnings: ["the budget is used"] });
  expect(screen.getByText("Limit").nextSibling?.textContent).toBe("1 d, default of the service");
  expect(screen.getByText("the budget is used")).toBeTruthy();
});
