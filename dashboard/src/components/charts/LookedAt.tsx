/** Charts whose view settings are in the page's address. */
import { useLocation } from "@tanstack/react-router";
import type { Look } from "@/lib/look";
import { Charts, type ChartsProps } from "./Charts";
import { NO_LOOK } from "./useLook";

interface LookedAtProps extends Omit<ChartsProps, "isFirst"> {
  address: Look;
  /** All view settings, including removed ones. */
  onLook: (look: Look) => void;
}

export function LookedAt({ address, onLook, ...charts }: LookedAtProps) {
  const isFirst = useLocation({ select: ({ state }) => (state.__TSR_index ?? 0) === 0 });
  return <Charts {...charts} isFirst={isFirst} address={address} onLook={(look) => onLook({ ...NO_LOOK, ...look })} />;
}
