/** Smoothing and axis in the address too, so that whoever is sent it sees the same curves. */
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { changeSettings, useChartSettings } from "@/components/charts/settings";

/** A slider that is drawn along is one change, not a hundred. */
const REST_MS = 300;

export function useLookInAddress(): void {
  const { jobs, ...address } = useSearch({ from: "/compare" });
  const { smoothing, axis } = useChartSettings();
  const navigate = useNavigate();
  const isTaken = useRef(false);
  useEffect(() => {
    if (jobs === undefined) return;
    const isFirst = !isTaken.current;
    isTaken.current = true;
    // An address that says how to look is obeyed once; from then on it follows what the person chooses.
    if (isFirst && (address.smoothing !== undefined || address.axis !== undefined)) {
      changeSettings({ smoothing: address.smoothing ?? 0, axis: address.axis ?? "step" });
      return;
    }
    if ((address.smoothing ?? 0) === smoothing && (address.axis ?? "step") === axis) return;
    const look = { smoothing: smoothing || undefined, axis: axis === "step" ? undefined : axis };
    const timer = setTimeout(
      () => void navigate({ to: "/compare", search: (before) => ({ ...before, ...look }), replace: true }),
      REST_MS,
    );
    return () => clearTimeout(timer);
  }, [jobs, address.smoothing, address.axis, smoothing, axis, navigate]);
}
