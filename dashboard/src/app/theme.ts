/**
 * Theme: warm paper and ink, one green for actions, other colours only for states.
 *
 * One type scale (12, 13, 14, 16, 20, 28 px) and one spacing scale (4, 8, 12, 16, 24, 40 px);
 * numbers are tabular. `tokens.css` has the variables of components beyond Mantine's own.
 */
import { createTheme, type MantineColorsTuple } from "@mantine/core";

const pine: MantineColorsTuple = [
  "#eef6f3",
  "#d9ebe4",
  "#b3d6c9",
  "#8fc7b5",
  "#63ab95",
  "#468f7a",
  "#367564",
  "#2f5d50",
  "#254a40",
  "#1a362f",
];

// Mantine's greys are blue; these are the paper's and the ink's.
const gray: MantineColorsTuple = [
  "#fbfaf8",
  "#f3f1ec",
  "#e9e5dd",
  "#ded9cf",
  "#cec8bc",
  "#aea799",
  "#8b867b",
  "#615d55",
  "#3d3a35",
  "#1c1b19",
];
const dark: MantineColorsTuple = [
  "#eceae5",
  "#c9c5bc",
  "#aaa599",
  "#7d786d",
  "#4a463f",
  "#33302b",
  "#292723",
  "#1e1d1b",
  "#161514",
  "#121110",
];

// `--bad` is its seventh; white text can be read on every shade that a button has.
const red: MantineColorsTuple = [
  "#fbe7e4",
  "#f7d3ce",
  "#f2b4ac",
  "#f29c93",
  "#dd6d63",
  "#c24a40",
  "#b4362d",
  "#a3261f",
  "#8a1f19",
  "#651612",
];

export const theme = createTheme({
  primaryColor: "pine",
  primaryShade: { light: 7, dark: 6 },
  colors: { pine, gray, dark, red },
  defaultRadius: "sm",
  cursorType: "pointer",
  respectReducedMotion: true,
  fontFamily: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif",
  fontFamilyMonospace: "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace",
  fontSizes: { xs: "0.75rem", sm: "0.8125rem", md: "0.875rem", lg: "1rem", xl: "1.25rem" },
  spacing: { xs: "0.25rem", sm: "0.5rem", md: "0.75rem", lg: "1rem", xl: "1.5rem" },
  components: {
    // A dialog's head is not the page's: without a role of its own it would be a second banner.
    Modal: { defaultProps: { attributes: { header: { role: "presentation" } } } },
    // As high as the pages' own fields, in `components/controls.module.css`.
    Input: { vars: () => ({ wrapper: { "--input-height": "32px", "--input-fz": "0.8125rem" } }) },
  },
  headings: {
    fontWeight: "600",
    sizes: {
      h1: { fontSize: "1.25rem", lineHeight: "1.3" },
      h2: { fontSize: "1rem", lineHeight: "1.4" },
      h3: { fontSize: "0.875rem", lineHeight: "1.4" },
    },
  },
});
