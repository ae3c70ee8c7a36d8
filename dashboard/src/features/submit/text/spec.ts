/** A spec that came as JSON, as a person would write it in YAML: sections as blocks, what is short on one line. */
import { Document, isCollection, isMap, isPair, visit } from "yaml";

const SHORT_CHARS_MAX = 88;

export function specText(spec: unknown): string {
  const document = new Document(spec);
  visit(document, {
    Collection(_, node, path) {
      const depth = path.filter(isCollection).length;
      const isShort = JSON.stringify(node.toJSON()).length <= SHORT_CHARS_MAX;
      const nests = node.items.some((item) => isMap(isPair(item) ? item.value : item));
      node.flow = depth > 0 && isShort && !(depth === 1 && nests);
    },
  });
  return document.toString({ lineWidth: 0, flowCollectionPadding: false });
}
