/** Actions of one card: logarithmic axis, pin, full screen, files. */
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
      <button
        type="button"
        aria-pressed={isLog}
        aria-label={`Log axis for ${metric}`}
        title="Logarithmic axis; values of 0 and below are gaps"
        onClick={() => toggle("logarithmic", metric)}
      >
        log
      </button>
      <button
        type="button"
        aria-pressed={isPinned}
        aria-label={`Pin ${metric}`}
        title={isPinned ? "Unpin" : "Pin: show first"}
        onClick={() => changeSettings({ pinned: toggled(pinned, metric) })}
      >
        pin
      </button>
      <Menu position="bottom-end" withinPortal classNames={{ dropdown: classes.menu }}>
        <Menu.Target>
          <button type="button" aria-label={`Download ${metric}`} title="Download as a file">
            download
          </button>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={onPicture}>Picture (PNG)</Menu.Item>
          <Menu.Item onClick={onDrawn}>What is drawn (CSV)</Menu.Item>
          <Menu.Item onClick={onEveryPoint}>Every point (CSV)</Menu.Item>
        </Menu.Dropdown>
      </Menu>
      {onExpand ? (
        <button
          type="button"
          aria-label={`Show ${metric} on the whole screen`}
          title="Whole screen"
          className={classes.expand}
          onClick={onExpand}
        >
          ⤢
        </button>
      ) : null}
    </div>
  );
}
