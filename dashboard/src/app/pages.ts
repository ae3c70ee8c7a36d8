/** Links and keys of the pages, as their routes declare them. */
import { useRouter } from "@tanstack/react-router";

interface Page {
  name: string;
  /** Opens the page after `g`. */
  key: string;
  /** True if the frame of every page links to it by name. */
  isListed: boolean;
  /** True if `project` in its address chooses the project. */
  isByProject?: boolean;
}

declare module "@tanstack/react-router" {
  interface StaticDataRouteOption {
    page?: Page;
  }
}

/** Return the pages that declare a name, in the order of the routes. */
export function usePages(): (Page & { to: string })[] {
  const { routesById } = useRouter();
  return Object.values(routesById).flatMap(({ fullPath, options }) => {
    const page = options.staticData?.page;
    return page === undefined ? [] : [{ ...page, to: fullPath }];
  });
}
