/** The page of the address, unless the caller lacks the right that it needs: its requests would only be refused. */
import { Outlet, useMatches } from "@tanstack/react-router";
import { useCaller } from "@/api/caller";
import { rightsOf } from "@/api/rights";
import { SkeletonRows } from "@/components/SkeletonRows";

export function GuardedOutlet() {
  const page = useMatches().at(-1)?.staticData.page;
  const { data: caller } = useCaller();
  // The page of the button asks for nothing without its right, and names the projects that take jobs.
  if (page?.needs === undefined || page.place === "button" || rightsOf(caller).has(page.needs)) return <Outlet />;
  if (caller === undefined) return <SkeletonRows label="Your rights are loading" />;
  return (
    <>
      <h1>{page.name}</h1>
      <p>This page needs the right {page.needs}. An admin of the service or of a project gives it.</p>
    </>
  );
}
