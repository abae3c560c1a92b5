/**
 * The code editor of one view: the files of a candidate and what the compiler made of them, each in a separate tab.
 *
 * Like the sketch editor it outlives the panel that shows it.
 */

import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState, type Extension, Prec } from "@codemirror/state";
import { EditorView, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { computed, effect, type ReadonlySignal, type Signal, signal, untracked } from "@preact/signals";
import { basics, Outside, readOnly } from "../editor/basics";
import { Desks } from "../editor/desks";
import { marksOf } from "../editor/diagnostics";
import { differenceFrom } from "../editor/difference";
import { shownText } from "../editor/draft";
import { Holder } from "../editor/holder";
import { goToLine, linkedLines, pointing, showLinked } from "../editor/lines";
import { pointerOf } from "../editor/links";
import { sketchSupport } from "../editor/sketch-language";
import type { Artefact, Diagnostic, Heat } from "../protocol";
import type { View } from "../view";
import {
  beforeOf,
  changedFiles,
  compilerFindings,
  type Files,
  isFiles,
  sameFiles,
  type Tab,
  tabAt,
  tabsOf,
} from "./files";
import { heatGutter, showHeat } from "./heat";
import { highlighting, languageOf } from "./languages";
import { linesFrom, originAt, originGutter, showOrigins } from "./origins";

/** What the file is compared with: nothing, the candidate before the shown turn, or what the session has. */
export type Against = "none" | "before" | "session";

/** An artefact on its way, there, or a sentence why not. */
export type Fetched = Artefact | "fetching" | { error: string };

/** a compiler's time on a busy machine */
const HEAT_MS = 60_000;
/** the entry of a source, by the kernel's rules */
const FIRST = "kernel.py";

const HELP =
  "Tab indents; press Escape, then Tab, to leave the editor. Control or Command and Enter verifies your edit.";

export class CodeEditor {
  readonly drafts: Desks<Files>;
  readonly files: ReadonlySignal<Files>;
  readonly tabs: ReadonlySignal<Tab[]>;
  readonly tab: ReadonlySignal<Tab | null>;
  readonly against: Signal<Against> = signal<Against>("none");
  /** the sketch is shown next to the code, and next to an artefact the file that it was made of */
  readonly beside: Signal<boolean> = signal(true);
  /** the artefact of the open tab, null on the tab of a file */
  readonly fetched: ReadonlySignal<Fetched | null>;
  /** the file that the open artefact was made of, where that is a file of the candidate; else null */
  readonly source: ReadonlySignal<string | null>;
  /** the compiler's words about the open file, and those about no line at all */
  readonly findings: ReadonlySignal<Diagnostic[]>;
  readonly remarks: ReadonlySignal<Diagnostic[]>;
  /** where the time of the verified code goes; null until that is known */
  readonly heat: Signal<Heat | null> = signal(null);

  #view: View;
  #chosen = signal("");
  #artefacts: Signal<ReadonlyMap<string, Fetched>> = signal(new Map());
  #code: Holder;
  /** what the editor shows is the person's own */
  #mine = false;
  #sketch: Holder;
  /** lines of the file next to it that belong to what is pointed at, and where that is */
  #pointed: Signal<{ lines: readonly number[]; origin: "file" | "artefact" } | null> = signal(null);
  /** the left side of the difference, null when none is shown */
  #original: ReadonlySignal<string | null>;
  #mode = new Compartment();
  #difference = new Compartment();
  /** the code that `heat` is of, or was asked for; "" for none */
  #heated = "";
  /** counts how often the sketch next to the code was mounted: a new one must learn what is pointed at */
  #mounted = signal(0);

  constructor(view: View) {
    this.#view = view;
    this.drafts = new Desks<Files>(view, {
      name: "source",
      read: (texts) => texts.files,
      equal: sameFiles,
      valid: isFiles,
      send: ({ text, from, turn }) => view.send({ action: "source", files: changedFiles(text, from), base: turn }),
    });
    const { texts, detail } = view.state;
    this.files = computed(() => shownText(this.drafts.desk.value));
    // a string, so that typing into a file leaves tabs and marks alone
    const names = computed(() => Object.keys(this.files.value).join("\n"));
    this.tabs = computed(() => tabsOf(texts.value, names.value ? names.value.split("\n") : this.#begun()));
    this.tab = computed(() => tabAt(this.tabs.value, this.#chosen.value));
    this.fetched = computed(() => {
      const tab = this.tab.value;
      return tab?.kind === "artefact" ? (this.#artefacts.value.get(this.#artefactKey(tab.name)) ?? null) : null;
    });
    this.source = computed(() => {
      const file = this.#artefact()?.file ?? "";
      return file in texts.value.files ? file : null;
    });
    const verdict = computed(() => (detail.value.turn === texts.value.turn ? detail.value.verdict : null));
    this.findings = computed(() => {
      const tab = this.tab.value;
      return tab?.kind === "file" ? compilerFindings(verdict.value, tab.name) : [];
    });
    this.#original = computed(() => {
      const tab = this.tab.value;
      if (tab?.kind !== "file" || this.against.value === "none") return null;
      if (this.against.value === "before") return beforeOf(texts.value, tab.name);
      return this.drafts.desk.value.theirs[tab.name] ?? "";
    });
    this.remarks = computed(() => compilerFindings(verdict.value, null));
    const shared = this.#everything();
    this.#code = new Holder((key, text) =>
      EditorState.create({ doc: text, extensions: [shared, this.#language(key)] }),
    );
    const plain = [lineNumbers(), linkedLines, readOnly(true)];
    const sketch = [basics("Sketch beside the code"), sketchSupport(), pointing((line) => this.#point(line, "sketch"))];
    const file = [basics("Source beside what was made of it"), pointing((line) => this.#pointFile(line))];
    this.#sketch = new Holder((key, text) =>
      EditorState.create({ doc: text, extensions: [plain, key === "" ? sketch : [file, this.#language(key)]] }),
    );
  }

  /** Where a person is asked for the first code there is an empty file to write it in. */
  #begun(): string[] {
    const { card } = this.#view.state.head.value;
    return card?.pending && card.kind === "brief" && card.role === "coder" ? [FIRST] : [];
  }

  open(key: string): void {
    this.#chosen.value = key;
  }

  /** Shows the code in `host` until the returned function is called. */
  mount(host: HTMLElement): () => void {
    const unfollow = this.drafts.follow();
    const close = this.#code.mount(host, this.#key(), this.#text());
    const stops = [
      effect(() => this.#showText()),
      effect(() => this.#showMode()),
      effect(() => this.#showDifference()),
      effect(() => this.#showOrigins()),
      effect(() => this.#showFindings()),
      effect(() => this.#showPointer()),
      effect(() => this.#takePlace()),
      effect(() => this.#fetch()),
      effect(() => this.#askHeat()),
      effect(() => this.#showHeat()),
    ];
    return () => {
      for (const stop of [unfollow, ...stops]) stop();
      close();
    };
  }

  /** Shows the sketch in `host`, to be read next to the code. */
  mountSketch(host: HTMLElement): () => void {
    const first = untracked(() => this.#besides());
    const close = this.#sketch.mount(host, first.key, first.text);
    this.#mounted.value += 1;
    const stop = effect(() => {
      const { key, text } = this.#besides();
      if (this.#sketch.show(key, text) === "other") untracked(() => this.#showPointer());
    });
    return () => {
      stop();
      close();
    };
  }

  /** What is shown next to it: an artefact's file, else the sketch, under the key "". */
  #besides(): { key: string; text: string } {
    const file = this.source.value;
    if (file === null) return { key: "", text: this.#view.state.texts.value.sketch };
    return { key: `${this.drafts.place.value}\nfile:${file}`, text: this.#view.state.texts.value.files[file] ?? "" };
  }

  focusLine(line: number): void {
    if (this.#code.view) goToLine(this.#code.view, line);
  }

  async apply(over = false): Promise<void> {
    await this.drafts.apply(over);
  }

  revert(): void {
    this.drafts.drop();
    if (this.against.value === "session") this.against.value = "none";
  }

  /** The text of the open tab, as it stands on the screen. */
  get text(): string {
    return this.#text();
  }

  #everything(): Extension {
    return [
      Prec.highest(
        keymap.of([
          {
            key: "Mod-Enter",
            run: () => {
              void this.apply();
              return true;
            },
          },
          // the browser would offer to save the page
          { key: "Mod-s", run: () => true },
        ]),
      ),
      originGutter((line) => this.#openOrigin(line)),
      lintGutter(),
      heatGutter(),
      lineNumbers(),
      basics("Code", HELP),
      linkedLines,
      pointing((line) => this.#pointCode(line)),
      placeholder("Write the kernel here: this file defines kernel(...), which gets the reference's arguments."),
      this.#mode.of([]),
      this.#difference.of([]),
      EditorView.updateListener.of((update) => {
        if (!update.docChanged || update.transactions.some((transaction) => transaction.annotation(Outside))) return;
        const tab = this.tab.peek();
        if (tab?.kind === "file") {
          this.drafts.edit({ ...this.files.peek(), [tab.name]: update.state.doc.toString() });
        }
      }),
    ];
  }

  #language(key: string): Extension {
    const name = key.slice(key.lastIndexOf("\n") + 1);
    const [kind = "", file = ""] = [name.slice(0, name.indexOf(":")), name.slice(name.indexOf(":") + 1)];
    const { language } = this.#view.state.texts.peek();
    return highlighting(kind === "artefact" ? languageOf(`.${file}`, "text") : languageOf(file, language));
  }

  /** States are kept by place and tab: the same file of two turns has two histories. */
  #key(): string {
    return `${this.drafts.place.value}\n${this.tab.value?.key ?? "file:"}`;
  }

  #text(): string {
    const tab = this.tab.value;
    if (!tab) return "";
    if (tab.kind === "file") return this.files.value[tab.name] ?? "";
    return this.#artefact()?.text ?? "";
  }

  #showText(): void {
    const key = this.#key();
    const text = this.#text();
    const mine = this.#mine;
    this.#mine = this.drafts.has(this.drafts.place.value);
    const done = this.#code.show(key, text, mine);
    if (done === "nothing") return;
    untracked(() => {
      if (done === "other") {
        const place = key.slice(0, key.indexOf("\n") + 1);
        this.#code.forget((other) => other.startsWith(place) || other.startsWith("\n"));
        this.#showMode();
        this.#showDifference();
      }
      this.#showOrigins();
      this.#showHeat();
      this.#showFindings();
      this.#showPointer();
    });
  }

  /** The session's lines refer to the session's text: in a draft the marks stay where the edit has moved them. */
  #isTheirs(): boolean {
    const tab = this.tab.value;
    if (tab?.kind !== "file") return true;
    return this.#code.view?.state.doc.toString() === this.drafts.desk.peek().theirs[tab.name];
  }

  #showMode(): void {
    const writable = this.tab.value?.kind === "file" && this.drafts.editable.value;
    const locked = !writable || this.#view.link.value === "gone";
    this.#code.view?.dispatch({ effects: this.#mode.reconfigure(readOnly(locked)) });
  }

  #showDifference(): void {
    const original = this.#original.value;
    this.#code.view?.dispatch({
      effects: this.#difference.reconfigure(
        original === null ? [] : differenceFrom(original, true, this.drafts.editable.value),
      ),
    });
  }

  /** Lines of a file come from the sketch, lines of an artefact from a file. */
  #showOrigins(): void {
    const { view } = this.#code;
    const tab = this.tab.value;
    const { line_map: map } = this.#view.state.texts.value;
    const got = this.#artefact();
    if (!view || !this.#isTheirs()) return;
    if (tab?.kind === "file") showOrigins(view, map[tab.name] ?? {}, "the sketch");
    else showOrigins(view, got?.lines ?? {}, got?.file ?? "");
  }

  /** Asks once for each code that was timed: it takes the kernel a compiler's time. */
  #askHeat(): void {
    const { detail, texts } = this.#view.state;
    const { turn, verdict } = detail.value;
    const timed = turn === texts.value.turn && verdict?.passed && verdict.figures.some((one) => one.name === "time");
    const key = timed ? JSON.stringify(texts.value.files) : "";
    if (key === this.#heated) return;
    this.#heated = key;
    this.heat.value = null;
    if (!key) return;
    const ask = this.#view.request({ ask: "heat" }, { timeout: HEAT_MS });
    ask.then(
      (found) => {
        if (this.#heated === key) this.heat.value = found;
      },
      () => {
        // asked again when the turn is looked at again: code can be read without it
        if (this.#heated === key) this.#heated = "";
      },
    );
  }

  #showHeat(): void {
    const heat = this.heat.value;
    const { view } = this.#code;
    const tab = this.tab.value;
    if (!view || !this.#isTheirs()) return;
    showHeat(view, tab?.kind === "file" && tab.name === heat?.file ? heat.lines : []);
  }

  #showFindings(): void {
    const found = this.findings.value;
    const { view } = this.#code;
    if (view && this.#isTheirs()) view.dispatch(setDiagnostics(view.state, marksOf(view.state.doc, found)));
  }

  #showPointer(): void {
    const pointer = pointerOf(this.#view).value;
    const pointed = this.#pointed.value;
    const lines = pointer?.lines ?? [];
    void this.#mounted.value;
    if (this.source.value !== null && this.#sketch.view) {
      const { view } = this.#code;
      const own = pointed?.lines ?? [];
      showLinked(this.#sketch.view, own, pointed?.origin === "artefact");
      if (view) showLinked(view, linesFrom(view.state, own), pointed?.origin === "file");
      return;
    }
    if (this.#sketch.view) showLinked(this.#sketch.view, lines, pointer?.origin === "code");
    const { view } = this.#code;
    if (!view) return;
    const here = this.tab.value?.kind === "artefact" ? this.#artefactLines(lines) : linesFrom(view.state, lines);
    showLinked(view, here, pointer?.origin === "sketch");
  }

  #takePlace(): void {
    const place = this.#view.place.value;
    if (!this.#code.view || place?.panel !== "code") return;
    const key = `file:${place.file ?? this.#view.state.texts.value.main_file}`;
    if (this.tabs.value.some((tab) => tab.key === key)) this.#chosen.value = key;
    this.#view.place.value = null;
    const { line } = place;
    // the panel, and the file in it, may only be coming up: what is hidden takes no focus
    if (line !== undefined) setTimeout(() => this.focusLine(line));
  }

  /** The open artefact is asked for once a turn; what could not be fetched is asked for again when it is opened again. */
  #fetch(): void {
    const tab = this.tab.value;
    const { turn } = this.#view.state.texts.value;
    if (tab?.kind !== "artefact" || turn === null) return;
    const key = this.#artefactKey(tab.name);
    const known = this.#artefacts.peek().get(key);
    if (known && !(typeof known === "object" && "error" in known)) return;
    const put = (value: Fetched) => {
      // Artefacts are long: those of other turns are let go.
      const kept = [...this.#artefacts.peek()].filter(([other]) => other.startsWith(`${turn}\n`));
      this.#artefacts.value = new Map(kept).set(key, value);
    };
    untracked(() => put("fetching"));
    this.#view.request({ ask: "artefact", name: tab.name }).then(put, (error: Error) => put({ error: error.message }));
  }

  /** The text of the open artefact; null on the tab of a file, and while it is not there. */
  #artefact(): Artefact | null {
    const got = this.fetched.value;
    return got && typeof got === "object" && "text" in got ? got : null;
  }

  #artefactKey(name: string): string {
    return `${this.#view.state.texts.value.turn ?? ""}\n${name}`;
  }

  /** Lines of the open artefact that come, through its file, from lines of the sketch. */
  #artefactLines(lines: readonly number[]): number[] {
    const { view } = this.#code;
    const got = this.#artefact();
    if (!view || !got) return [];
    const map = this.#view.state.texts.value.line_map[got.file] ?? {};
    const wanted = new Set(lines);
    const source = Object.keys(map).map(Number);
    return linesFrom(
      view.state,
      source.filter((line) => wanted.has(map[line] ?? 0)),
    );
  }

  #point(line: number | null, origin: "sketch" | "code"): void {
    pointerOf(this.#view).value = line === null ? null : { lines: [line], origin };
  }

  #pointFile(line: number | null): void {
    this.#pointed.value = line === null ? null : { lines: [line], origin: "file" };
  }

  #pointCode(line: number | null): void {
    const { view } = this.#code;
    const from = view && line !== null ? originAt(view.state, line) : null;
    const got = this.#artefact();
    this.#pointed.value = got && from !== null ? { lines: [from], origin: "artefact" } : null;
    const map = this.#view.state.texts.peek().line_map;
    this.#point(from === null || !got ? from : (map[got.file]?.[from] ?? null), "code");
  }

  /** A click on an origin: to the sketch next to the code or in its panel; from an artefact to the file. */
  #openOrigin(line: number): void {
    const got = this.#artefact();
    if (got && this.source.peek() !== null && this.#sketch.view?.dom.offsetParent) goToLine(this.#sketch.view, line);
    else if (got) {
      this.open(`file:${got.file}`);
      setTimeout(() => this.focusLine(line));
    } else if (this.#sketch.view?.dom.offsetParent) goToLine(this.#sketch.view, line);
    else this.#view.open("sketch", { line });
  }
}

const editors = new WeakMap<View, CodeEditor>();

export function codeEditorOf(view: View): CodeEditor {
  let found = editors.get(view);
  if (!found) {
    found = new CodeEditor(view);
    editors.set(view, found);
  }
  return found;
}
