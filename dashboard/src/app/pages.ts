/** Links and keys of the pages, as their routes declare them. */
import { useRouter } from "@tanstack/react-router";
import type { Right } from "@/api/generated";
import { useRights } from "@/api/rights";

interface Page {
  name: string;
  /** Opens the page after `g`. */
  key?: string;
  /** Where the frame of every page links to it by name; `New job` is a button. */
  place: "head" | "menu" | "button";
  /** Right without which the page has nothing for the caller. */
  needs?: Right;
  /** True if `project` in its address chooses the project. */
  isByProject?: boolean;
}

declare module "@tanstack/react-router" {
  interface StaticDataRouteOption {
    page?: Page;
  }
}

/** Return the pages that declare a name and are of use to the caller, in the order of the routes. */
export function usePages(): (Page & { to: string })[] {
  const { routesById } = useRouter();
  const rights = useRights();
  return Object.values(routesById).flatMap(({ fullPath, options }) => {
    const page = options.staticData?.page;
    const isOfUse = page !== undefined && (page.needs === undefined || rights.has(page.needs));
    return isOfUse ? [{ ...page, to: fullPath }] : [];
  });
}
