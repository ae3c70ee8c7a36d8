/** A script's command, as one would type it behind `torchrun`; in the spec it is a list of words. */
import { useState } from "react";
import { joinWords, splitWords } from "../text/words";
import { useField } from "./context";
import { Frame } from "./Field";
import classes from "./Field.module.css";
import { Section } from "./Section";

export function ScriptFields() {
  const path = ["script", "command"];
  const { value, set, problems } = useField(path);
  // While one types, the line is as it was typed: a space or a quote that is open says nothing to the list yet.
  const [typed, setTyped] = useState<string | null>(null);
  const words = Array.isArray(value) ? value.map(String) : [];
  const isSame = typed !== null && joinWords(splitWords(typed)) === joinWords(words);
  return (
    <Section title="Script" says="A name that ends in .py is run by the node's Python, once for each GPU.">
      <Frame wide label="Command, as after torchrun" path={path} problems={problems}>
        {(control) => (
          <input
            {...control}
            className={classes.input}
            type="text"
            autoComplete="off"
            spellCheck={false}
            placeholder="train.py --lr 3e-4"
            value={isSame ? typed : joinWords(words)}
            onChange={({ target }) => {
              setTyped(target.value);
              set(splitWords(target.value));
            }}
            onBlur={() => setTyped(null)}
          />
        )}
      </Frame>
    </Section>
  );
}
