import { forEachDiagnostic } from "@codemirror/lint";
import { EditorView } from "@codemirror/view";
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { rest } from "../../../tests/kernel";
import { pointerOf } from "../../editor/links";
import { fixture, Kernel, viewOf } from "../../editor/tests/kernel";
import type { Card, VerdictView } from "../../protocol";
import type { View } from "../../view";
import { CodePanel } from "..";

let kernel: Kernel;
let view: View;
let root: HTMLElement;

const find = (selector: string) => EditorView.findFromDOM(root.querySelector(selector) as HTMLElement) as EditorView;
const editor = () => find(".kl-ed-host:not(.kl-code-beside) .cm-editor");
const text = () => editor().state.doc.toString();
const tab = (name: string) =>
  [...root.querySelectorAll("[role=tab]")].find((one) => one.textContent?.startsWith(name)) as HTMLElement;
const button = (name: string) =>
  [...root.querySelectorAll("button")].find((one) => one.textContent === name) as HTMLButtonElement;
const settle = () => act(() => rest(40));
const type = (insert: string, at = 0) =>
  act(() => editor().dispatch({ changes: { from: at, insert }, userEvent: "input.type" }));

beforeEach(async () => {
  kernel = new Kernel("edited");
  view = viewOf(kernel);
  root = document.createElement("div");
  document.body.append(root);
  await act(() => render(<CodePanel view={view} />, root));
  await settle();
});

afterEach(async () => {
  await act(() => render(null, root));
  view.dispose();
  root.remove();
});

describe("the code panel", () => {
  it("shows the main file, and another one when its tab is chosen", async () => {
    expect(text()).toBe(kernel.traits.texts.files["kernel.cpp"]);
    await act(() => tab("kernel.py").click());
    expect(text()).toBe(kernel.traits.texts.files["kernel.py"]);
    expect(tab("kernel.py").getAttribute("aria-selected")).toBe("true");
    expect(tab("kernel.cpp").tabIndex).toBe(-1);
  });

  it("has an empty file for a person who is asked for the first code, and no row of buttons before that", async () => {
    kernel.put("texts", { files: {}, files_before: {}, artefacts: [], main_file: "" });
    await settle();
    expect(root.textContent).toContain("There is no code yet.");
    expect(button("Verify my edit")).toBeUndefined();
    const card = { kind: "brief", role: "coder", pending: true } as Card;
    kernel.put("head", { card, can: { ...kernel.traits.head.can, edit: true } });
    await settle();
    await type("def kernel(x):\n");
    await act(() => button("Verify my edit").click());
    expect(kernel.acts[0]).toMatchObject({ action: "source", files: { "kernel.py": "def kernel(x):\n" } });
  });

  it("says whose code a person begins from, where that is of an older sketch", async () => {
    expect(root.textContent).not.toContain("older sketch");
    kernel.put("texts", { begun_from: 2 });
    await settle();
    expect(root.textContent).toContain("The code of turn 2, which is of an older sketch.");
  });

  it("marks the lines that the time goes to, in the file that was timed, and says so in a sentence", async () => {
    const lines = [{ line: 2, share: 0.62, text: "62% of the samples of its time are at kernel.cpp:2." }];
    kernel.answers.heat = () => ({ file: "kernel.cpp", lines, told: [lines[0]?.text] });
    const { detail } = kernel.traits;
    const figure = { name: "time", text: "1 ms", title: "" };
    const verdict = { ...(detail.verdict as VerdictView), passed: true, figures: [figure] };
    kernel.put("detail", { ...detail, turn: kernel.traits.texts.turn, verdict });
    await settle();
    await settle();
    const marks = () => [...root.querySelectorAll(".kl-heat span")].map((one) => one.textContent);
    expect(marks()).toContain("62%");
    expect(root.textContent).toContain("62% of the samples");
    await act(() => tab("kernel.py").click());
    expect(marks()).not.toContain("62%");
  });

  it("sends only the file that was edited, with the turn that it was derived from", async () => {
    await type("// mine\n");
    await act(() => tab("kernel.py").click());
    expect(text()).toBe(kernel.traits.texts.files["kernel.py"]);
    await act(() => button("Verify my edit").click());
    await settle();
    const mine = `// mine\n${kernel.traits.texts.files["kernel.cpp"]}`;
    expect(kernel.acts).toEqual([{ action: "source", files: { "kernel.cpp": mine }, base: kernel.traits.texts.turn }]);
  });

  it("keeps edits of several files apart from the session's newer code", async () => {
    await type("// mine\n");
    const mine = text();
    const { files } = kernel.traits.texts;
    kernel.put("head", { current: "t9" });
    kernel.put("texts", { turn: "t9", files: { ...files, "kernel.cpp": "int theirs;\n" } });
    await settle();
    expect(text()).toBe(mine);
    expect(root.textContent).toContain("The session has another code since you began");
    await act(() => button("Take theirs").click());
    expect(text()).toBe("int theirs;\n");
  });

  it("tells for each line where it comes from, also after an edit above it", async () => {
    const map = kernel.traits.texts.line_map["kernel.cpp"] ?? {};
    const [line, origin] = Object.entries(map)[0] ?? [];
    const gutter = () => [...root.querySelectorAll(".kl-origins .kl-origin")].map((one) => one.textContent);
    expect(gutter()[0]).toBe(String(origin));
    await type("// one more line\n");
    expect(gutter()[0]).toBe(String(origin));
    pointerOf(view).value = { lines: [Number(origin)], origin: "sketch" };
    await settle();
    const { doc } = editor().state;
    const linked = [...root.querySelectorAll(".kl-ed-host:not(.kl-code-beside) .kl-linked-line")];
    expect(linked[0]?.textContent).toBe(doc.line(Number(line) + 1).text);
  });

  it("marks in the sketch next to it the line that is pointed at in the code", async () => {
    pointerOf(view).value = { lines: [2], origin: "code" };
    await settle();
    const linked = root.querySelector(".kl-code-beside .kl-linked-line");
    expect(linked?.textContent).toBe(kernel.traits.texts.sketch.split("\n")[1]);
    await act(() => (root.querySelector("input[type=checkbox]") as HTMLElement).click());
    expect(root.querySelector(".kl-code-beside")).toBeNull();
  });

  it("fetches an artefact when its tab is opened, once, to be read only", async () => {
    await act(() => tab("asm").click());
    await settle();
    const artefact = fixture("answers").artefact.value;
    expect(text()).toBe(artefact.text);
    expect(editor().state.readOnly).toBe(true);
    await act(() => tab("kernel.cpp").click());
    await act(() => tab("asm").click());
    await settle();
    expect(kernel.asks.filter((one) => one.ask === "artefact")).toHaveLength(1);
    expect(root.querySelector<HTMLElement>(".kl-origin span")?.title).toContain(`of ${artefact.file}`);
  });

  it("tells what an artefact shows, and links its lines with the source next to it both ways", async () => {
    await act(() => tab("asm").click());
    await settle();
    const { facts, lines, file } = fixture("answers").artefact.value;
    expect(root.querySelector(".kl-code-facts")?.textContent).toContain(facts[0].title);
    const source = find(".kl-code-beside .cm-editor");
    expect(source.state.doc.toString()).toBe(kernel.traits.texts.files[file]);
    const [line, from] = Object.entries(lines)[0] as [string, number];
    const over = (view: EditorView, number: number) => {
      view.posAtCoords = () => view.state.doc.line(number).from;
      return act(() => {
        view.contentDOM.dispatchEvent(new MouseEvent("mousemove", { bubbles: true }));
      });
    };
    const linked = (where: string) =>
      [...root.querySelectorAll(`${where} .kl-linked-line`)].map((one) => one.textContent);
    await over(editor(), Number(line));
    expect(linked(".kl-code-beside")).toEqual([source.state.doc.line(from).text]);
    await over(source, from);
    expect(linked(".kl-ed-host:not(.kl-code-beside)")).toContain(editor().state.doc.line(Number(line)).text);
    await act(() => tab("kernel.cpp").click());
    await settle();
    expect(find(".kl-code-beside .cm-editor").state.doc.toString()).toBe(kernel.traits.texts.sketch);
  });

  it("says why there is no artefact, and asks again the next time", async () => {
    delete kernel.answers.artefact;
    await act(() => tab("asm").click());
    await settle();
    expect(root.querySelector("[role=alert]")?.textContent).toBe("no answer");
    await act(() => tab("kernel.cpp").click());
    await act(() => tab("asm").click());
    await settle();
    expect(kernel.asks.filter((one) => one.ask === "artefact")).toHaveLength(2);
  });

  it("puts the compiler's words at their lines, out of range ones at the end", async () => {
    const { verdict } = kernel.traits.detail;
    const compiler = [
      { file: "kernel.cpp", line: 5, message: "error: no" },
      { file: "kernel.cpp", line: 9999, message: "warning: far" },
    ];
    kernel.put("detail", { verdict: verdict && { ...verdict, compiler } });
    await settle();
    const lines: number[] = [];
    forEachDiagnostic(editor().state, (_, from) => lines.push(editor().state.doc.lineAt(from).number));
    expect(lines).toEqual([5, editor().state.doc.lines]);
    expect(root.querySelector(".kl-ed-findings")?.textContent).toContain("error, line 5");
  });

  it("shows the difference to the candidate before", async () => {
    const select = root.querySelector("select") as HTMLSelectElement;
    await act(() => {
      select.value = "before";
      select.dispatchEvent(new Event("change", { bubbles: true }));
    });
    expect(root.querySelector(".cm-deletedChunk")).not.toBeNull();
  });

  it("compares what a model wrote while it is asked about, and not after that", async () => {
    const { changed, head } = kernel.traits;
    const wrote = changed.map((row) => ({ ...row, author: "model" as const }));
    const card = { ...(head.card as Card), id: "c", kind: "turn" as const, role: "coder", pending: true };
    kernel.put("changed", wrote);
    kernel.put("head", { card });
    await settle();
    expect(root.querySelector("select")?.value).toBe("before");
    kernel.put("head", { card: null });
    await settle();
    expect(root.querySelector("select")?.value).toBe("none");
  });

  it("opens the file and line that another panel points to", async () => {
    await act(() => view.open("code", { file: "kernel.py", line: 3 }));
    await settle();
    expect(text()).toBe(kernel.traits.texts.files["kernel.py"]);
    expect(editor().state.doc.lineAt(editor().state.selection.main.head).number).toBe(3);
  });

  it("takes no letters where there is no file", async () => {
    kernel.put("texts", { files: {}, files_before: {}, line_map: {}, artefacts: [], main_file: "" });
    await settle();
    expect(text()).toBe("");
    expect(editor().state.readOnly).toBe(true);
  });
});
