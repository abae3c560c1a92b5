/** A sketch that is written to be sent somewhere: the editor, its cost and its findings, without drafts or pins. */

import { setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState, Prec } from "@codemirror/state";
import { EditorView, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Checked, Diagnostic } from "../protocol";
import { readOnly, TAB_HELP } from "./basics";
import { Checker } from "./checking";
import { inOrder, marksOf, rangeOf, severityOf } from "./diagnostics";
import { type CheckedText, Cost, Findings } from "./findings";
import { Holder } from "./holder";
import { goToLine } from "./lines";
import { type AskSketch, sketchText } from "./sketch-text";
import "./editor.css";

/** The field's text, which outlasts the panel that shows it. */
export class SketchField implements CheckedText {
  readonly text: Signal<string> = signal("");
  readonly editable: Signal<boolean> = signal(true);
  readonly checker: Checker;
  readonly checked: Signal<Checked | null> = signal(null);
  readonly findings: ReadonlySignal<Diagnostic[]>;
  readonly errors: ReadonlySignal<number>;

  #holder: Holder;
  #mode = new Compartment();

  /** `send` is what Control or Command and Enter do. */
  constructor(request: AskSketch, label: string, hint: string, send: () => void) {
    this.checker = new Checker(
      (text, abort) => request({ ask: "check", text }, { signal: abort }),
      (checked) => {
        this.checked.value = checked;
      },
    );
    this.findings = computed(() => (this.text.value.trim() ? inOrder(this.checked.value?.diagnostics ?? []) : []));
    // an answer about an older text refuses nothing
    this.errors = computed(() =>
      this.checker.version.value === this.checker.checked.value
        ? this.findings.value.filter((one) => severityOf(one) === "error").length
        : 0,
    );
    const keys = [
      // the browser would offer to save the page
      { key: "Mod-s", run: () => true },
      {
        key: "Mod-Enter",
        run: () => {
          send();
          return true;
        },
      },
    ];
    const extensions = [
      Prec.highest(keymap.of(keys)),
      sketchText(request, label, TAB_HELP),
      lineNumbers(),
      placeholder(hint),
      this.#mode.of([]),
      EditorView.updateListener.of((update) => {
        if (!update.docChanged) return;
        this.text.value = update.state.doc.toString();
        this.#ask();
      }),
    ];
    this.#holder = new Holder((_, text) => EditorState.create({ doc: text, extensions }));
  }

  mount(host: HTMLElement): () => void {
    const close = this.#holder.mount(host, "", this.text.peek());
    this.#ask(0);
    const stops = [
      effect(() => {
        this.#holder.show("", this.text.value, true);
      }),
      effect(() => {
        this.#editor?.dispatch({ effects: this.#mode.reconfigure(readOnly(!this.editable.value)) });
      }),
      effect(() => {
        const found = this.findings.value;
        const editor = this.#editor;
        if (editor) editor.dispatch(setDiagnostics(editor.state, marksOf(editor.state.doc, found)));
      }),
    ];
    return () => {
      for (const stop of stops) stop();
      this.checker.cancel();
      close();
    };
  }

  focusLine(line: number): void {
    if (this.#editor) goToLine(this.#editor, line);
  }

  fix(one: Diagnostic): void {
    const editor = this.#editor;
    if (!editor || !one.fix) return;
    const [from, to] = rangeOf(editor.state.doc, one);
    editor.dispatch({ changes: { from, to, insert: one.fix } });
  }

  get #editor(): EditorView | null {
    return this.#holder.view;
  }

  #ask(wait?: number): void {
    const text = this.text.peek();
    if (text.trim()) this.checker.ask(text, wait);
    else {
      this.checker.cancel();
      this.checked.value = null;
    }
  }
}

export function SketchArea({ field, label }: { field: SketchField; label: string }) {
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => (host.current ? field.mount(host.current) : undefined), [field]);
  return (
    <section
      class="kl-ed kl-sketch"
      aria-label={label}
      data-doc-version={field.checker.version.value}
      data-checked-version={field.checker.checked.value}
    >
      <div class="kl-ed-host" ref={host} />
      <Cost editor={field} />
      <Findings editor={field} />
    </section>
  );
}
