/** Charts whose look is in the page's address, and comes from there. */
import type { Look } from "@/lib/look";
import { Charts, type ChartsProps } from "./Charts";
import { NO_LOOK } from "./useLook";

interface LookedAtProps extends ChartsProps {
  address: Look;
  /** Everything of a look, also what is no part of it any more. */
  onLook: (look: Look) => void;
}

export function LookedAt({ address, onLook, ...charts }: LookedAtProps) {
  return <Charts {...charts} address={address} onLook={(look) => onLook({ ...NO_LOOK, ...look })} />;
}
