/** Charts whose view settings are in the page's address. */
import type { Look } from "@/lib/look";
import { Charts, type ChartsProps } from "./Charts";
import { NO_LOOK } from "./useLook";

interface LookedAtProps extends ChartsProps {
  address: Look;
  /** All view settings, including removed ones. */
  onLook: (look: Look) => void;
}

export function LookedAt({ address, onLook, ...charts }: LookedAtProps) {
  return <Charts {...charts} address={address} onLook={(look) => onLook({ ...NO_LOOK, ...look })} />;
}
