/** This browser's own settings: colours and pace. */
import { useMantineColorScheme } from "@mantine/core";
import { type PACES, setPace, usePace } from "@/api/pace";
import { SegmentedControl } from "@/components/mantine";
import { usePageTitle } from "@/components/usePageTitle";
import classes from "./SettingsPage.module.css";

export function SettingsPage() {
  usePageTitle("Settings");
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const pace = usePace();
  return (
    <div className={classes.settings}>
      <h1>Settings</h1>
      <section>
        <h2 id="colours">Colours</h2>
        <SegmentedControl
          aria-labelledby="colours"
          value={colorScheme}
          onChange={(value) => setColorScheme(value as typeof colorScheme)}
          data={[
            { value: "auto", label: "As the system" },
            { value: "light", label: "Light" },
            { value: "dark", label: "Dark" },
          ]}
        />
      </section>
      <section>
        <h2 id="pace">How often pages are brought up to date</h2>
        <SegmentedControl
          aria-labelledby="pace"
          value={pace.name}
          onChange={(value) => setPace(value as keyof typeof PACES)}
          data={[
            { value: "live", label: "Live (2–5 s)" },
            { value: "calm", label: "Calm (12–30 s)" },
            { value: "paused", label: "Paused" },
          ]}
        />
      </section>
    </div>
  );
}
