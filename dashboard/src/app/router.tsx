/** Addresses and the pages behind them. Each page is a chunk of its own, loaded when it is first opened. */
import {
  createRootRouteWithContext,
  createRoute,
  createRouter,
  lazyRouteComponent,
  type RouterHistory,
  redirect,
} from "@tanstack/react-router";
import { readComparison } from "@/features/compare/view";
import { readJobTab } from "@/features/job/tab";
import { readJobsView } from "@/features/jobs/view";
import { readSubmitStart } from "@/features/submit/start";
import { only, unread } from "@/lib/address";
import { readProject } from "@/lib/project";
import { NotFound } from "./NotFound";
import { PageFailed } from "./PageFailed";
import { Shell } from "./Shell";

/**
 * A page that is loaded when it is first opened. One that cannot be loaded shows `PageFailed`: for its own errors of this
 * kind the router reloads the tab, which is lost while the service does not answer.
 */
function lazyPage<Module extends Record<string, unknown>, Name extends keyof Module>(
  load: () => Promise<Module>,
  name: Name,
) {
  const loaded = async () => {
    try {
      return await load();
    } catch (error) {
      throw new Error("The page could not be loaded.", { cause: error });
    }
  };
  return lazyRouteComponent<Module, Name>(loaded, name);
}

interface Context {
  /** Parts of the first address that its page does not take. */
  leftOut: string;
}

const root = createRootRouteWithContext<Context>()({ component: Shell, notFoundComponent: NotFound });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  staticData: { page: { name: "Home", key: "h", place: "head" } },
  component: lazyPage(() => import("@/features/home/HomePage"), "HomePage"),
});
const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  staticData: { page: { name: "Jobs", key: "j", place: "head", isByProject: true } },
  validateSearch: only(readJobsView),
  component: lazyPage(() => import("@/features/jobs/JobsPage"), "JobsPage"),
});
const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$job",
  validateSearch: only(readJobTab),
  component: lazyPage(() => import("@/features/job/JobPage"), "JobPage"),
});
const compare = createRoute({
  getParentRoute: () => root,
  path: "/compare",
  staticData: { page: { name: "Compare", key: "c", place: "head" } },
  validateSearch: only(readComparison),
  component: lazyPage(() => import("@/features/compare/ComparePage"), "ComparePage"),
});
const submit = createRoute({
  getParentRoute: () => root,
  path: "/submit",
  staticData: { page: { name: "New job", key: "s", place: "button", needs: "job.submit" } },
  validateSearch: only(readSubmitStart),
  component: lazyPage(() => import("@/features/submit/SubmitPage"), "SubmitPage"),
});
const cluster = createRoute({
  getParentRoute: () => root,
  path: "/cluster",
  staticData: { page: { name: "Cluster", key: "n", place: "head" } },
  component: lazyPage(() => import("@/features/cluster/ClusterPage"), "ClusterPage"),
});
/** Address of the version before. */
const nodes = createRoute({
  getParentRoute: () => root,
  path: "/nodes",
  beforeLoad: () => {
    throw redirect({ to: "/cluster", replace: true });
  },
});
const queue = createRoute({
  getParentRoute: () => root,
  path: "/queue",
  staticData: { page: { name: "Queue", key: "q", place: "head", isByProject: true } },
  validateSearch: only(readProject),
  component: lazyPage(() => import("@/features/queue/QueuePage"), "QueuePage"),
});
const settings = createRoute({
  getParentRoute: () => root,
  path: "/settings",
  staticData: { page: { name: "Settings", place: "menu" } },
  component: lazyPage(() => import("@/features/session/SettingsPage"), "SettingsPage"),
});
const account = createRoute({
  getParentRoute: () => root,
  path: "/account",
  staticData: { page: { name: "Account", key: "m", place: "menu" } },
  component: lazyPage(() => import("@/features/people/AccountPage"), "AccountPage"),
});
const people = createRoute({
  getParentRoute: () => root,
  path: "/people",
  staticData: { page: { name: "People", key: "p", place: "menu", needs: "user.write" } },
  component: lazyPage(() => import("@/features/people/PeoplePage"), "PeoplePage"),
});
const projects = createRoute({
  getParentRoute: () => root,
  path: "/projects",
  staticData: { page: { name: "Projects", key: "r", place: "menu" } },
  component: lazyPage(() => import("@/features/people/ProjectsPage"), "ProjectsPage"),
});
const tokens = createRoute({
  getParentRoute: () => root,
  path: "/tokens",
  staticData: { page: { name: "Tokens", key: "t", place: "menu", needs: "token.write" } },
  component: lazyPage(() => import("@/features/people/TokensPage"), "TokensPage"),
});
const audit = createRoute({
  getParentRoute: () => root,
  path: "/audit",
  staticData: { page: { name: "Audit", key: "a", place: "menu", needs: "audit.read" } },
  component: lazyPage(() => import("@/features/people/AuditPage"), "AuditPage"),
});

const work = [home, jobs, job, queue, cluster, nodes, compare, submit] as const;
const team = [account, tokens, projects, people, audit, settings] as const;
const routeTree = root.addChildren([...work, ...team]);

export const router = makeRouter();

/** `history` is that of the window if it is not given. */
export function makeRouter(history?: RouterHistory) {
  const context: Context = { leftOut: "" };
  const made = createRouter({
    routeTree,
    history,
    context,
    defaultPreload: "intent",
    scrollRestoration: true,
    defaultErrorComponent: ({ error }) => <PageFailed error={error} />,
  });
  // Here, because the router's first act is to replace the address by that of the view.
  const { search } = made.latestLocation;
  context.leftOut = unread(search, made.matchRoutes(made.latestLocation).at(-1)?.search ?? {}).join(", ");
  return made;
}

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
