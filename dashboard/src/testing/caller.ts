/** Callers for tests of pages. */
import type { CallerView, Right } from "@/api/generated";

const RIGHTS: Right[] = [
  ...(["job.read", "job.submit", "job.control", "job.write", "checkpoint.read"] as const),
  ...(["node.read", "node.write", "project.write", "member.write", "project.create", "project.limits"] as const),
  ...(["audit.read", "user.read", "user.write", "token.write"] as const),
];
/** An admin of the service, alone. */
export const ADMIN: CallerView = {
  name: "admin",
  title: "",
  role: "admin",
  projects: {},
  credential: "none",
  scopes: null,
  rights: RIGHTS,
  rights_everywhere: RIGHTS,
  rights_in: {},
  has_password: false,
  is_alone: true,
  expires_at: null,
};
/** One of a team who reads the project `default`, and nothing else. */
export const VIEWER: CallerView = {
  ...ADMIN,
  name: "vera",
  role: null,
  projects: { default: "viewer" },
  rights: ["job.read", "node.read", "user.read", "token.write"],
  rights_everywhere: [],
  rights_in: { default: ["job.read"] },
  is_alone: false,
};
