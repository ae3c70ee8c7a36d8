/** Names of the specs that a new job can start from, as an address has them. */
export const TEMPLATE_NAMES = ["GPT on text", "Digits", "torchrun script"] as const;
export type TemplateName = (typeof TEMPLATE_NAMES)[number];
