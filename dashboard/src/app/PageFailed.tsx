/** In place of a page that could not be loaded or drawn. */
import { useState } from "react";
import { Failed } from "@/components/Failed";
import { reloadIfReached } from "./upgrade";

const OFFLINE = new Error("Lockstep does not answer. The page is loaded again when you retry and it does.");

export function PageFailed({ error }: { error: unknown }) {
  const [isOffline, setIsOffline] = useState(false);
  const retry = async () => setIsOffline(!(await reloadIfReached()));
  return <Failed error={isOffline ? OFFLINE : error} retry={() => void retry()} />;
}
