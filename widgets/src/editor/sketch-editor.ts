/**
 * The sketch editor of one view: CodeMirror, the drafts, the checker and the pins, put together.
 *
 * It outlives the panel that shows it: when another panel is opened its state is kept (text, caret, history, scroll),
 * and the next mount shows it again.
 */

import { setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState, type Extension, Prec } from "@codemirror/state";
import { EditorView, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { computed, effect, type ReadonlySignal, type Signal, signal, untracked } from "@preact/signals";
import type { Checked, Diagnostic } from "../protocol";
import type { View } from "../view";
import { Outside, readOnly } from "./basics";
import { Checker } from "./checking";
import { Desks, HEAD } from "./desks";
import { marksOf, merged, rangeOf, severityOf } from "./diagnostics";
import { differenceFrom } from "./difference";
import { shownText } from "./draft";
import type { CheckedText } from "./findings";
import { Holder } from "./holder";
import { goToLine, linkedLines, pinGutter, pointing, showLinked } from "./lines";
import { codeLinesOf, generatedWords, pointerOf } from "./links";
import { isPinnable, isPinned, withPin } from "./pins";
import { sketchText } from "./sketch-text";

/** What the text is compared with: nothing, the sketch before the shown turn, or what the session has. */
export type Against = "none" | "parent" | "session";

const LABEL = "Sketch";
const HELP =
  "Tab indents; press Escape, then Tab, to leave the editor. Control or Command and Enter applies. Alt P pins the line.";

export class SketchEditor implements CheckedText {
  readonly drafts: Desks<string>;
  readonly checker: Checker;
  readonly checked: Signal<Checked | null> = signal(null);
  readonly findings: ReadonlySignal<Diagnostic[]>;
  /** how many of them are errors */
  readonly errors: ReadonlySignal<number>;
  readonly against: Signal<Against> = signal<Against>("none");
  /** the session's pin is being changed */
  readonly pinning: Signal<boolean> = signal(false);

  #view: View;
  #holder: Holder;
  /** what the editor shows is the person's own */
  #mine = false;
  /** what the cost of a sketch depends on: what the task computes, "" until the kernel has read it, and its bound */
  #known: ReadonlySignal<string>;
  /** the left side of the difference, null when none is shown */
  #original: ReadonlySignal<string | null>;
  #mode = new Compartment();
  #difference = new Compartment();

  constructor(view: View) {
    this.#view = view;
    this.drafts = new Desks<string>(view, {
      name: "sketch",
      read: (texts) => texts.sketch,
      equal: (a, b) => a === b,
      valid: (value): value is string => typeof value === "string",
      send: ({ text, turn }) => view.send({ action: "sketch", text, base: turn }),
    });
    this.checker = new Checker(
      (text, abort) => view.request({ ask: "check", text }, { signal: abort }),
      (checked) => {
        this.checked.value = checked;
      },
    );
    this.findings = computed(() => {
      const { detail, texts } = view.state;
      if (this.#unwritten) return [];
      const recorded = this.drafts.standing.value === "same" && detail.value.turn === texts.value.turn;
      return merged(this.checked.value?.diagnostics ?? [], recorded ? detail.value.diagnostics : []);
    });
    this.errors = computed(() => this.findings.value.filter((one) => severityOf(one) === "error").length);
    this.#known = computed(() => `${view.state.head.value.operator} ${view.state.head.value.sol_ms}`);
    this.#original = computed(() => {
      if (this.against.value === "none") return null;
      return this.against.value === "parent" ? view.state.texts.value.sketch_before : this.drafts.desk.value.theirs;
    });
    const extensions = this.#everything();
    this.#holder = new Holder((_, text) => EditorState.create({ doc: text, extensions }));
  }

  /** Shows the editor in `host` until the returned function is called. */
  mount(host: HTMLElement): () => void {
    const unfollow = this.drafts.follow();
    const close = this.#holder.mount(host, this.drafts.place.peek(), shownText(this.drafts.desk.peek()));
    const stops = [
      effect(() => this.#askWhenKnown()),
      effect(() => this.#showText()),
      effect(() => this.#showMode()),
      effect(() => this.#showDifference()),
      effect(() => this.#showFindings()),
      effect(() => this.#showPointer()),
      effect(() => this.#takePlace()),
    ];
    return () => {
      for (const stop of [unfollow, ...stops]) stop();
      this.checker.cancel();
      close();
    };
  }

  focusLine(line: number): void {
    if (this.#editor) goToLine(this.#editor, line);
  }

  get #editor(): EditorView | null {
    return this.#holder.view;
  }

  /** There is no sketch yet, and the person has not begun one: nothing to find fault with. */
  get #unwritten(): boolean {
    return this.drafts.standing.value === "same" && this.#view.state.texts.value.sketch.trim() === "";
  }

  #ask(wait?: number): void {
    if (this.#editor && !untracked(() => this.#unwritten)) this.checker.ask(this.#editor.state.doc.toString(), wait);
  }

  /**
   * Asks, and asks again when the kernel has read the task: sizes, and with them the cost, are known only then. And
   * when a verdict has measured the machine: there is one bound on a screen.
   */
  #askWhenKnown(): void {
    void this.#known.value;
    untracked(() => this.#ask(0));
  }

  /** Sets the pin of a line or takes it off: at once in a draft, else by the session. */
  togglePin(number: number): void {
    const editor = this.#editor;
    if (!editor || !this.#mayPin()) return;
    const line = editor.state.doc.line(number);
    if (!isPinnable(line.text)) {
      this.#view.say(`Line ${number} cannot be pinned. Pin a line with a statement, a loop or a declaration on it.`);
      return;
    }
    const on = !isPinned(line.text);
    if (this.drafts.standing.value === "same" && this.drafts.place.value === HEAD) {
      this.pinning.value = true;
      void this.#view.send({ action: "pin", line: number, on }).then(() => {
        this.pinning.value = false;
      });
      return;
    }
    // The draft's lines differ from the session's, so the pin is sent with the draft.
    editor.dispatch({
      changes: { from: line.from, to: line.to, insert: withPin(line.text, on) },
      userEvent: "input.pin",
    });
  }

  /** A draft with errors is held back unless `anyway`: the first of them is shown instead. */
  async apply(over = false, anyway = false): Promise<void> {
    const first = this.findings.peek().find((one) => severityOf(one) === "error");
    if (first && !anyway && this.drafts.standing.peek() === "edited") {
      this.focusLine(first.line);
      return;
    }
    await this.drafts.apply(over);
  }

  fix(one: Diagnostic): void {
    const editor = this.#editor;
    if (!editor || !one.fix) return;
    const [from, to] = rangeOf(editor.state.doc, one);
    editor.dispatch({ changes: { from, to, insert: one.fix } });
  }

  revert(): void {
    this.drafts.drop();
    if (this.against.value === "session") this.against.value = "none";
  }

  #everything(): Extension {
    return [
      Prec.highest(
        keymap.of([
          { key: "Mod-Enter", run: () => this.#applyKey() },
          { key: "Alt-p", run: (view) => this.#pinKey(view), preventDefault: true },
          // the browser would offer to save the page
          { key: "Mod-s", run: () => true },
        ]),
      ),
      pinGutter(
        () => this.#mayPin(),
        (line) => this.togglePin(line),
      ),
      sketchText((ask, options) => this.#view.request(ask, options), LABEL, HELP),
      lineNumbers({
        domEventHandlers: {
          mousedown: (view, block) => this.#openCode(view.state.doc.lineAt(block.from).number),
        },
      }),
      linkedLines,
      pointing((line) => {
        pointerOf(this.#view).value = line === null ? null : { lines: [line], origin: "sketch" };
      }),
      placeholder("There is no sketch yet."),
      this.#mode.of([]),
      this.#difference.of([]),
      EditorView.updateListener.of((update) => {
        if (!update.docChanged) return;
        if (!update.transactions.some((transaction) => transaction.annotation(Outside))) {
          this.drafts.edit(update.state.doc.toString());
        }
        this.#ask();
      }),
    ];
  }

  #showText(): void {
    const text = shownText(this.drafts.desk.value);
    const place = this.drafts.place.value;
    const mine = this.#mine;
    this.#mine = this.drafts.has(place);
    if (this.#holder.show(place, text, mine) !== "other") return;
    // Another turn's text came up, with a separate state.
    this.#holder.forget((key) => key === HEAD || this.drafts.has(key));
    this.checker.cancel();
    this.checked.value = null;
    untracked(() => {
      this.#showMode();
      this.#showDifference();
    });
    this.#ask(0);
  }

  #showMode(): void {
    const editable = this.drafts.editable.value && this.#view.link.value !== "gone";
    const pinning = this.pinning.value;
    const may = editable && !pinning;
    this.#editor?.dispatch({
      effects: this.#mode.reconfigure([
        readOnly(!editable),
        EditorView.editorAttributes.of({ class: may ? "kl-may-pin" : "" }),
      ]),
    });
  }

  #showDifference(): void {
    const original = this.#original.value;
    this.#editor?.dispatch({
      effects: this.#difference.reconfigure(
        original === null ? [] : differenceFrom(original, false, this.drafts.editable.value),
      ),
    });
  }

  #showFindings(): void {
    const found = this.findings.value;
    const editor = this.#editor;
    // An answer about an older text never gets here; findings of the record belong to the text that is shown.
    if (editor) editor.dispatch(setDiagnostics(editor.state, marksOf(editor.state.doc, found)));
  }

  #showPointer(): void {
    const pointer = pointerOf(this.#view).value;
    const foreign = pointer?.origin === "code" ? pointer.lines : [];
    if (this.#editor) showLinked(this.#editor, foreign, true);
  }

  #takePlace(): void {
    const place = this.#view.place.value;
    if (!this.#editor || place?.panel !== "sketch") return;
    this.#view.place.value = null;
    const { line } = place;
    // the panel may only be coming up: what is hidden takes no focus
    if (line !== undefined) setTimeout(() => this.focusLine(line));
  }

  #mayPin(): boolean {
    return this.drafts.editable.peek() && !this.pinning.peek() && this.#view.link.peek() !== "gone";
  }

  #applyKey(): boolean {
    void this.apply();
    return true;
  }

  #pinKey(view: EditorView): boolean {
    this.togglePin(view.state.doc.lineAt(view.state.selection.main.head).number);
    return true;
  }

  /** A click on a line's number opens the code that came from it. */
  #openCode(line: number): boolean {
    const { line_map: map } = this.#view.state.texts.value;
    if (!generatedWords(map, line)) return false;
    for (const file of Object.keys(map)) {
      const first = codeLinesOf(map, file, [line])[0];
      if (first === undefined) continue;
      this.#view.open("code", { file, line: first });
      return true;
    }
    return false;
  }
}

const editors = new WeakMap<View, SketchEditor>();

export function sketchEditorOf(view: View): SketchEditor {
  let found = editors.get(view);
  if (!found) {
    found = new SketchEditor(view);
    editors.set(view, found);
  }
  return found;
}
