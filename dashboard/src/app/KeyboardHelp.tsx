import { Kbd, Modal } from "@/components/mantine";
import classes from "./KeyboardHelp.module.css";
import { SHORTCUTS } from "./keys";
import { usePages } from "./pages";

export function KeyboardHelp({ opened, onClose }: { opened: boolean; onClose: () => void }) {
  const open = usePages();
  const pages = open.flatMap(({ key, name }) => (key === undefined ? [] : { keys: `g ${key}`, does: `go to ${name}` }));
  const shortcuts = SHORTCUTS.filter(({ of }) => of === undefined || open.some(({ to }) => to === of));
  return (
    <Modal opened={opened} onClose={onClose} title="Keyboard shortcuts" closeButtonProps={{ "aria-label": "Close" }}>
      {[{ where: "Pages", shortcuts: pages }, ...shortcuts].map(({ where, shortcuts }) => (
        <section key={where}>
          <h3 className={classes.where}>{where}</h3>
          <dl className={classes.keys}>
            {shortcuts.map(({ keys, does }) => (
              <div key={keys}>
                <dt>
                  {keys.split(" ").map((key) => (
                    <Kbd key={key}>{key}</Kbd>
                  ))}
                </dt>
                <dd>{does}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </Modal>
  );
}
