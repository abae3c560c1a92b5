/**
 * One CodeMirror view that shows one of several texts at a time.
 *
 * Each text has a key; its state (caret, history, marks, scroll) is kept while another is shown and while nothing is.
 */

import { isolateHistory } from "@codemirror/commands";
import { type EditorState, type StateEffect, Transaction } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { changeOf, keepKeys, Outside } from "./basics";

export class Holder {
  /** null while no panel shows it */
  view: EditorView | null = null;
  /** key of the text that is shown */
  key: string | null = null;

  #kept = new Map<string, { state: EditorState; scroll: StateEffect<unknown> }>();
  #fresh: (key: string, text: string) => EditorState;

  constructor(fresh: (key: string, text: string) => EditorState) {
    this.#fresh = fresh;
  }

  /** Puts an editor into `host` until the returned function is called. */
  mount(host: HTMLElement, key: string, text: string): () => void {
    const release = keepKeys(host);
    const kept = this.#kept.get(key);
    const view = new EditorView({
      parent: host,
      state: kept?.state ?? this.#fresh(key, text),
      ...(kept ? { scrollTo: kept.scroll } : {}),
    });
    this.view = view;
    this.key = key;
    this.show(key, text);
    return () => {
      this.#keep();
      this.view = null;
      release();
      view.destroy();
    };
  }

  /**
   * Shows `text` under `key`, by the smallest change when that is shown already, and says what was done.
   *
   * `mine`: what it replaces is the person's own, so an undo brings it back. Other changes are no steps of theirs: an
   * undo leaves them alone.
   */
  show(key: string, text: string, mine = false): "nothing" | "changed" | "other" {
    const { view } = this;
    if (!view) return "nothing";
    const other = key !== this.key;
    if (other) {
      this.#keep();
      this.key = key;
      const kept = this.#kept.get(key);
      view.setState(kept?.state ?? this.#fresh(key, text));
      if (kept) view.dispatch({ effects: kept.scroll });
      else view.scrollDOM.scrollTo(0, 0);
    }
    const changes = changeOf(view.state.doc.toString(), text);
    const step = mine ? isolateHistory.of("full") : Transaction.addToHistory.of(false);
    if (changes) view.dispatch({ changes, annotations: [Outside.of(true), step] });
    return other ? "other" : changes ? "changed" : "nothing";
  }

  /** Drops the states that `wanted` does not name. */
  forget(wanted: (key: string) => boolean): void {
    for (const key of [...this.#kept.keys()]) if (!wanted(key)) this.#kept.delete(key);
  }

  #keep(): void {
    if (!this.view || this.key === null) return;
    this.#kept.set(this.key, { state: this.view.state, scroll: this.view.scrollSnapshot() });
  }
}
