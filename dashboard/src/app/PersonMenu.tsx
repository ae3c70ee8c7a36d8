/** Menu of the person who uses this browser. */
import { lazy } from "react";
import { useCaller } from "@/api/caller";
import { Opener } from "@/components/Opener";
import classes from "./Shell.module.css";

const load = () => import("./PersonEntries");
const PersonEntries = lazy(async () => ({ default: (await load()).PersonEntries }));

export function PersonMenu() {
  const { data: caller } = useCaller();
  return (
    <div className={classes.menu}>
      <Opener
        popup="menu"
        load={load}
        size="sm"
        className={classes.person}
        opened={(opened) => <PersonEntries {...opened} />}
      >
        <span className={classes.name}>{caller?.name ?? "Menu"}</span>
        <span aria-hidden="true">▾</span>
      </Opener>
    </div>
  );
}
