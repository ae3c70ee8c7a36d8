/** What the page and its editor say to each other; without the editor's code, which comes later. */

export interface Mark {
  from: number;
  to: number;
  message: string;
}

export interface EditorHandle {
  /** Put the cursor there and bring it into sight. */
  reveal: (at: number) => void;
}
