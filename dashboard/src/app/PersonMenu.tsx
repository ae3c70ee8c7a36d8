/** Menu of the person who uses this browser: the own account, the pages about people, and the way out. */
import { Menu } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useCaller } from "@/api/caller";
import { useSignOut } from "@/features/session/useSignOut";
import { usePages } from "./pages";
import classes from "./Shell.module.css";

export function PersonMenu() {
  const { data: caller } = useCaller();
  const signOut = useSignOut();
  const entries = usePages().filter(({ place }) => place === "menu");
  // Without Mantine's placeholder for the focus: a menu has no other children than its entries.
  return (
    <div className={classes.menu}>
      <Menu
        position="bottom-end"
        transitionProps={{ duration: 0 }}
        withinPortal={false}
        withInitialFocusPlaceholder={false}
      >
        <Menu.Target>
          <button type="button" className={classes.person}>
            <span className={classes.name}>{caller?.name ?? "Menu"}</span>
            <span aria-hidden="true">▾</span>
          </button>
        </Menu.Target>
        <Menu.Dropdown>
          {entries.map(({ to, name }) => (
            <Menu.Item key={to} component={Link} to={to}>
              {name}
            </Menu.Item>
          ))}
          {signOut === null ? null : (
            <>
              <Menu.Divider />
              <Menu.Item onClick={signOut}>Sign out</Menu.Item>
            </>
          )}
        </Menu.Dropdown>
      </Menu>
    </div>
  );
}
