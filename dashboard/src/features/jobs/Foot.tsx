/** Below the rows: the totals of the whole list and its pages, or what can be done with the selection. */
import { Link, useLocation, useRouter } from "@tanstack/react-router";
import type { JobPage } from "@/api/generated";
import { Button } from "@/components/Button";
import { number } from "@/lib/format";
import { counted } from "@/lib/resources";
import classes from "./Foot.module.css";
import { ActionBar } from "./selection/ActionBar";
import type { Selection } from "./selection/useSelection";
import { statesInWords } from "./table/words";
import { type JobsView, STATES } from "./view";

declare module "@tanstack/react-router" {
  interface HistoryState {
    /** True for a page of the list that was opened from the page before it. */
    isNextPage?: boolean;
  }
}

interface FootProps {
  view: JobsView;
  page: JobPage;
  selection: Selection;
}

export function Foot({ view, page, selection }: FootProps) {
  return (
    <div className={classes.foot}>
      <ActionBar view={view} selection={selection} total={page.total} />
      {selection.jobs.length > 0 ? null : (
        <div className={classes.totals}>
          <span className={classes.count}>{countWords(view, page)}</span>
          {page.totals == null ? null : <span className={classes.soft}>{inUse(view, page)}</span>}
          {view.group === undefined ? <Pages view={view} next={page.next_cursor ?? null} /> : null}
          <span className={classes.keys}>
            <kbd>j</kbd> <kbd>k</kbd> move · <kbd>x</kbd> select · <kbd>Enter</kbd> open · <kbd>c</kbd> compare ·{" "}
            <kbd>?</kbd> all keys
          </span>
        </div>
      )}
    </div>
  );
}

function countWords(view: JobsView, { items, total, totals }: JobPage): string {
  if (view.group !== undefined) {
    const groups = totals?.groups ?? [];
    const all = totals?.groups_total ?? groups.length;
    const shown = groups.length < all ? `${number(groups.length)} of ${counted(all, "group")}` : counted(all, "group");
    return `${shown}, ${number(total)} ${total === 1 ? "job" : "jobs"}`;
  }
  if (items.length === total) return `${number(total)} ${total === 1 ? "job" : "jobs"}`;
  return `${number(items.length)} of ${number(total)} jobs`;
}

/** Of the whole filter: jobs by state, and the devices that they hold. */
function inUse({ state }: JobsView, { totals }: JobPage): string {
  const shown = Object.fromEntries((state ?? STATES).map((each) => [each, totals?.states[each]]));
  return [statesInWords(shown), `${counted(totals?.gpus_in_use ?? 0, "GPU")} in use`].filter(Boolean).join(" · ");
}

/** Each page has an address. The cursors of the service lead on; the way back is that of the browser. */
function Pages({ view, next }: { view: JobsView; next: string | null }) {
  const { history } = useRouter();
  const isNextPage = useLocation({ select: ({ state }) => state.isNextPage === true });
  const { cursor, ...first } = view;
  if (cursor === undefined && next === null) return null;
  return (
    <nav className={classes.pages} aria-label="Pages of the list">
      {cursor === undefined ? null : (
        <Link to="/jobs" search={first}>
          First page
        </Link>
      )}
      {cursor !== undefined && isNextPage ? (
        <Button variant="link" onClick={() => history.back()}>
          ← Previous
        </Button>
      ) : null}
      {next === null ? null : (
        <Link to="/jobs" search={{ ...view, cursor: next }} state={{ isNextPage: true }}>
          Next →
        </Link>
      )}
    </nav>
  );
}
