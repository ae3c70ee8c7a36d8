/** Actions of one card: logarithmic axis, pin, full screen, files. */
import { Button } from "@/components/Button";
import { Menu } from "@/components/mantine";
import classes from "./CardActions.module.css";
import { changeSettings, toggled, useChartSettings } from "./settings";
import { useLook } from "./useLook";

interface CardActionsProps {
  metric: string;
  onExpand?: () => void;
  onPicture: () => void;
  onDrawn: () => void;
  onEveryPoint: () => void;
}

export function CardActions({ metric, onExpand, onPicture, onDrawn, onEveryPoint }: CardActionsProps) {
  const { pinned } = useChartSettings();
  const { logarithmic, toggle } = useLook();
  const isLog = logarithmic.includes(metric);
  const isPinned = pinned.includes(metric);
  return (
    <div className={classes.actions}>
      <Button
        variant="subtle"
        size="xs"
        aria-pressed={isLog}
        aria-label={`Log axis for ${metric}`}
        title="Logarithmic axis; values of 0 and below are gaps"
        onClick={() => toggle("logarithmic", metric)}
      >
        log
      </Button>
      <Button
        variant="subtle"
        size="xs"
        aria-pressed={isPinned}
        aria-label={`Pin ${metric}`}
        title={isPinned ? "Unpin" : "Pin: show first"}
        onClick={() => changeSettings({ pinned: toggled(pinned, metric) })}
      >
        pin
      </Button>
      <Menu position="bottom-end" withinPortal classNames={{ dropdown: classes.menu }}>
        <Menu.Target>
          <Button variant="subtle" size="xs" aria-label={`Download ${metric}`} title="Download as a file">
            download
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={onPicture}>Picture (PNG)</Menu.Item>
          <Menu.Item onClick={onDrawn}>What is drawn (CSV)</Menu.Item>
          <Menu.Item onClick={onEveryPoint}>Every point (CSV)</Menu.Item>
        </Menu.Dropdown>
      </Menu>
      {onExpand ? (
        <Button
          variant="subtle"
          size="xs"
          aria-label={`Show ${metric} on the whole screen`}
          title="Whole screen"
          className={classes.expand}
          onClick={onExpand}
        >
          ⤢
        </Button>
      ) : null}
    </div>
  );
}
