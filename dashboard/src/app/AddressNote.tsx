/** Note above a page that was opened by an address with parts that it does not take. */
import { useLocation, useRouter } from "@tanstack/react-router";
import { useState } from "react";
import { Button } from "@/components/Button";
import classes from "./AddressNote.module.css";

export function AddressNote() {
  const { leftOut } = useRouter().options.context;
  const { pathname, searchStr } = useLocation();
  const [first] = useState(pathname + searchStr);
  const [isClosed, setIsClosed] = useState(false);
  if (leftOut === "" || isClosed || pathname + searchStr !== first) return null;
  return (
    <p role="status" className={classes.note}>
      <span>
        The address had a part that this page does not know. It is left out: <strong>{leftOut}</strong>
      </span>
      <Button variant="outline" size="xs" onClick={() => setIsClosed(true)}>
        Close
      </Button>
    </p>
  );
}
