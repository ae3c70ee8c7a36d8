/** Entries of the person's menu: the own account, the pages about people, and the way out. */
import { Link } from "@tanstack/react-router";
import { Menu } from "@/components/mantine";
import { Anchor, type Opened } from "@/components/Opener";
import { useFocusBack } from "@/components/PopoverOf";
import { useSignOut } from "@/features/session/useSignOut";
import { usePages } from "./pages";

export function PersonEntries({ id, button, close }: Opened) {
  const signOut = useSignOut();
  const entries = usePages().filter(({ place }) => place === "menu");
  useFocusBack(id, button);
  // Without Mantine's placeholder for the focus: a menu has no other children than its entries.
  return (
    <Menu
      id={id}
      opened
      onChange={(isOpen) => isOpen || close()}
      position="bottom-end"
      transitionProps={{ duration: 0 }}
      withinPortal={false}
      withInitialFocusPlaceholder={false}
    >
      <Menu.Target>
        <Anchor of={button} />
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
  );
}
