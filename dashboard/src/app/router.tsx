/** Addresses and the pages behind them. Each page is a chunk of its own, loaded when it is first opened. */
import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { readComparison } from "@/features/compare/view";
import { readJobTab } from "@/features/job/tab";
import { readJobsView } from "@/features/jobs/view";
import { readSubmitStart } from "@/features/submit/start";
import { NotFound } from "./NotFound";
import { PageFailed } from "./PageFailed";
import { Shell } from "./Shell";

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/jobs", replace: true });
  },
});
const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: readJobsView,
  component: lazyRouteComponent(() => import("@/features/jobs/JobsPage"), "JobsPage"),
});
const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$job",
  validateSearch: readJobTab,
  component: lazyRouteComponent(() => import("@/features/job/JobPage"), "JobPage"),
});
const compare = createRoute({
  getParentRoute: () => root,
  path: "/compare",
  validateSearch: readComparison,
  component: lazyRouteComponent(() => import("@/features/compare/ComparePage"), "ComparePage"),
});
const submit = createRoute({
  getParentRoute: () => root,
  path: "/submit",
  validateSearch: readSubmitStart,
  component: lazyRouteComponent(() => import("@/features/submit/SubmitPage"), "SubmitPage"),
});
const nodes = createRoute({
  getParentRoute: () => root,
  path: "/nodes",
  component: lazyRouteComponent(() => import("@/features/nodes/NodesPage"), "NodesPage"),
});
const queue = createRoute({
  getParentRoute: () => root,
  path: "/queue",
  component: lazyRouteComponent(() => import("@/features/queue/QueuePage"), "QueuePage"),
});
const settings = createRoute({
  getParentRoute: () => root,
  path: "/settings",
  component: lazyRouteComponent(() => import("@/features/session/SettingsPage"), "SettingsPage"),
});

export const router = createRouter({
  routeTree: root.addChildren([home, jobs, job, compare, submit, nodes, queue, settings]),
  defaultPreload: "intent",
  scrollRestoration: true,
  defaultErrorComponent: ({ error }) => <PageFailed error={error} />,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
