/**
 * The components of Mantine that the pages use, with their styles in the order in which Mantine has them.
 *
 * No page needs them for its first paint: what imports this file is loaded when it is first used, or with a form.
 */
import "@mantine/core/styles/ScrollArea.layer.css";
import "@mantine/core/styles/VisuallyHidden.layer.css";
import "@mantine/core/styles/Paper.layer.css";
import "@mantine/core/styles/Overlay.layer.css";
import "@mantine/core/styles/Popover.layer.css";
import "@mantine/core/styles/Loader.layer.css";
import "@mantine/core/styles/ActionIcon.layer.css";
import "@mantine/core/styles/CloseButton.layer.css";
import "@mantine/core/styles/ModalBase.layer.css";
import "@mantine/core/styles/Input.layer.css";
import "@mantine/core/styles/FloatingIndicator.layer.css";
import "@mantine/core/styles/InlineInput.layer.css";
import "@mantine/core/styles/Checkbox.layer.css";
import "@mantine/core/styles/Code.layer.css";
import "@mantine/core/styles/Kbd.layer.css";
import "@mantine/core/styles/Menu.layer.css";
import "@mantine/core/styles/Modal.layer.css";
import "@mantine/core/styles/NumberInput.layer.css";
import "@mantine/core/styles/PasswordInput.layer.css";
import "@mantine/core/styles/SegmentedControl.layer.css";

export {
  Checkbox,
  CloseButton,
  Code,
  Kbd,
  Menu,
  Modal,
  NativeSelect,
  NumberInput,
  PasswordInput,
  Popover,
  SegmentedControl,
  Textarea,
  TextInput,
} from "@mantine/core";
