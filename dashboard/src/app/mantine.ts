/**
 * What each page has of Mantine: its base, and the button. `components/mantine.ts` has the other components; the variables
 * come with the provider, which knows the theme.
 *
 * All are in the layer `mantine`: the pages' own rules win over them, in whatever order the files are loaded.
 */
import "./layers.css";
import "@mantine/core/styles/baseline.layer.css";
import "@mantine/core/styles/global.layer.css";
import "@mantine/core/styles/UnstyledButton.layer.css";

export { UnstyledButton } from "@mantine/core";
