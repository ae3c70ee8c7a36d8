/** The view of the address: with the own name in a team, and with the own default where the list was opened plainly. */
import { useLocation, useNavigate, useRouter, useSearch } from "@tanstack/react-router";
import { useEffect } from "react";
import { useCaller } from "@/api/caller";
import { ownerToStartWith } from "@/lib/owner";
import { isUsual, named, useHabit } from "./habits";
import { type JobsView, settled } from "./view";

export function useView() {
  const asked = useSearch({ from: "/jobs" });
  const { data: caller, isPending } = useCaller();
  const me = caller === undefined ? null : ownerToStartWith(caller);
  const given = useDefault(asked);
  // Until it is known who reads it, a link keeps what it says.
  const view = caller === undefined ? given : settled(given, me);
  const router = useRouter();
  const navigate = useNavigate();
  const habit = useHabit();
  useEffect(() => {
    // The list is still there while the chunk of a page that was chosen loads: that choice is not undone.
    const isLeft = router.latestLocation.pathname !== "/jobs";
    if (view !== asked && !isLeft) void navigate({ to: "/jobs", search: view, replace: true });
  }, [view, asked, navigate, router]);
  return {
    view,
    me,
    /** False until it is known whose jobs the list begins with. */
    isSettled: asked.owner !== undefined || !isPending,
    go: (next: JobsView, isSame = false) => void navigate({ to: "/jobs", search: named(next, habit), replace: isSame }),
  };
}

/**
 * `view` with the own default, if its address has no columns, order and groups and was opened from within the dashboard.
 * On the page that a tab opens first, such an address is the usual view: a link shows the same to everyone.
 */
function useDefault(view: JobsView): JobsView {
  const isFirst = useLocation({ select: ({ state }) => (state.__TSR_index ?? 0) === 0 });
  const habit = useHabit();
  if (habit === null || !isUsual(view)) return view;
  return isFirst ? named(view, habit) : { ...view, ...habit };
}
