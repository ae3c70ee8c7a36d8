/**
 * Styles of Mantine that each page has. `components/mantine.ts` has those of the components, and `components/Button.tsx`
 * that of the button; the variables come with the provider, which knows the theme.
 *
 * All are in the layer `mantine`: the pages' own rules win over them, in whatever order the files are loaded.
 */
import "./layers.css";
import "@mantine/core/styles/baseline.layer.css";
import "@mantine/core/styles/global.layer.css";
