/** Button of the choice of columns. */
import { lazy } from "react";
import { Opener } from "@/components/Opener";
import type { ColumnChoiceProps } from "./ColumnChoice";

const load = () => import("./ColumnChoice");
const ColumnChoice = lazy(async () => ({ default: (await load()).ColumnChoice }));

export function ColumnChooser(props: ColumnChoiceProps) {
  return (
    <Opener popup="dialog" load={load} opened={(opened) => <ColumnChoice {...opened} {...props} />}>
      Columns {props.ids.length} <span aria-hidden>▾</span>
    </Opener>
  );
}
