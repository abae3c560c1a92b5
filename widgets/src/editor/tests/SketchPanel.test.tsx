import { forEachDiagnostic } from "@codemirror/lint";
import { EditorView } from "@codemirror/view";
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { rest } from "../../../tests/kernel";
import { ConductorCard } from "../../card";
import type { Card, Checked } from "../../protocol";
import { View } from "../../view";
import { SketchPanel } from "..";
import { fixture, Kernel, viewOf } from "./kernel";

let kernel: Kernel;
let view: View;
let root: HTMLElement;

const show = (shown = view) => act(() => render(<SketchPanel view={shown} />, root));
const hide = () => act(() => render(null, root));
const editor = () => EditorView.findFromDOM(root.querySelector(".cm-editor") as HTMLElement) as EditorView;
const text = () => editor().state.doc.toString();
const button = (name: string) =>
  [...root.querySelectorAll("button")].find((one) => one.textContent === name) as HTMLButtonElement;
const panel = () => root.querySelector(".kl-sketch") as HTMLElement;
const settle = () => act(() => rest(60));
const type = (insert: string, at = text().length) =>
  act(() => editor().dispatch({ changes: { from: at, insert }, userEvent: "input.type" }));
const press = (key: string, more: KeyboardEventInit = {}) =>
  act(() => {
    editor().contentDOM.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
  });

beforeEach(async () => {
  kernel = new Kernel("pinned");
  view = viewOf(kernel);
  root = document.createElement("div");
  document.body.append(root);
  await show();
  await settle();
});

afterEach(async () => {
  await hide();
  view.dispose();
  root.remove();
});

describe("a card while an edit is not applied", () => {
  it("asks before it leaves the edit out", async () => {
    const card = { id: "c", kind: "turn" as const, role: "designer", pending: true };
    await act(() => {
      kernel.put("head", { ...kernel.traits.head, card: { ...(kernel.traits.head.card as Card), ...card } });
    });
    const place = document.createElement("div");
    await act(() => render(<ConductorCard view={view} />, place));
    const approved = () => kernel.acts.filter((one) => one.action === "approve").length;
    const press = () => act(() => (place.querySelector("[data-action=approve]") as HTMLButtonElement).click());
    await type("\n// mine");
    await press();
    expect(approved()).toBe(0);
    expect(place.querySelector("[role=alert]")?.textContent).toContain("Your edit of the sketch is not applied.");
    await press();
    expect(approved()).toBe(1);
    await act(() => render(null, place));
  });
});

describe("what a model wrote, before it is approved", () => {
  const before = () => text().replace("@llm_hint", "@llm_hint2");
  const asked = async () => {
    const { texts, changed } = kernel.traits;
    const card = { id: "c", kind: "turn" as const, role: "designer", pending: true };
    const wrote = changed.map((row) => ({ ...row, author: "model" as const }));
    await act(() => {
      kernel.put("changed", wrote);
      kernel.put("texts", { ...texts, sketch_before: before() });
      kernel.put("head", { ...kernel.traits.head, card: { ...(kernel.traits.head.card as Card), ...card } });
    });
    await settle();
  };

  it("is shown by hunks, each of which can be refused or accepted", async () => {
    const earlier = before();
    await asked();
    expect(root.querySelector("select")?.value).toBe("parent");
    const refuse = root.querySelector("[data-action=hunk-reject]") as HTMLButtonElement;
    expect(refuse.textContent).toBe("Refuse");
    await act(() => {
      refuse.dispatchEvent(new MouseEvent("mousedown", { bubbles: true, cancelable: true }));
    });
    expect(text()).toBe(earlier);
    expect(panel().dataset.standing).toBe("edited");
    expect(button("Apply and continue").getAttribute("aria-disabled")).toBeNull();
  });

  it("is not compared any more when it is approved, nor in later turns", async () => {
    const difference = () => root.querySelector("select")?.value;
    const taken = async () => {
      await act(() => kernel.put("head", { ...kernel.traits.head, card: null }));
      await settle();
    };
    await asked();
    expect(difference()).toBe("parent");
    await taken();
    expect(difference()).toBe("none");
    const choose = (one: string) =>
      act(() => {
        const select = root.querySelector("select") as HTMLSelectElement;
        select.value = one;
        select.dispatchEvent(new Event("change", { bubbles: true }));
      });
    await asked();
    await choose("session");
    await taken();
    expect(difference()).toBe("session");
    await choose("none");
    await asked();
    await choose("none");
    // another panel is looked at
    await hide();
    await show();
    await settle();
    expect(difference()).toBe("none");
  });

  it("an accepted hunk stays, and is not marked any more", async () => {
    const now = text();
    await asked();
    await act(() => {
      root
        .querySelector("[data-action=hunk-accept]")
        ?.dispatchEvent(new MouseEvent("mousedown", { bubbles: true, cancelable: true }));
    });
    expect(text()).toBe(now);
    expect(root.querySelector("[data-action=hunk-reject]")).toBeNull();
    expect(panel().dataset.standing).toBe("same");
  });
});

describe("the sketch panel", () => {
  it("shows the session's sketch, what it costs, and nothing to do", () => {
    expect(text()).toBe(kernel.traits.texts.sketch);
    const cost = fixture("answers").check.value.cost[0];
    const first = root.querySelector(".kl-ed-cost [data-tip]");
    expect(first?.textContent).toContain(cost.text);
    expect(first?.getAttribute("data-tip")).toBe(cost.title);
    expect(button("Apply and continue").getAttribute("aria-disabled")).toBe("true");
    expect(button("Revert").getAttribute("aria-disabled")).toBe("true");
    expect(panel().dataset.checkedVersion).toBe(panel().dataset.docVersion);
  });

  it("finds no fault with a sketch that is not written yet, and shows what the model writes", async () => {
    await hide();
    const checks = () => kernel.asks.filter((one) => one.ask === "check").length;
    const asked = checks();
    kernel.put("texts", { sketch: "", sketch_before: "" });
    kernel.put("detail", { diagnostics: [] });
    kernel.put("partial", { turn: "t1", role: "designer", text: "sketch soft", length: 11 });
    await show();
    await settle();
    expect(root.querySelector(".kl-ed-findings")).toBeNull();
    expect(checks()).toBe(asked);
    expect(root.querySelector(".kl-streaming")?.textContent).toContain("sketch soft");
    kernel.put("partial", { turn: null, role: "", text: "", length: 0 });
    await settle();
    expect(root.querySelector(".kl-streaming")).toBeNull();
  });

  it("puts the checker's findings at their lines, by glyph, word and sentence", async () => {
    const broken: Checked = fixture("answers").check_broken.value;
    kernel.answers.check = () => broken;
    await type("\n# more");
    await settle();
    const first = broken.diagnostics[0];
    const lines: number[] = [];
    forEachDiagnostic(editor().state, (_, from) => lines.push(editor().state.doc.lineAt(from).number));
    expect(lines).toEqual(broken.diagnostics.map((one) => one.line));
    const row = root.querySelector(".kl-ed-findings button");
    expect(row?.textContent).toContain(`error, line ${first?.line}`);
    expect(row?.textContent).toContain(first?.message);
    await act(() => (row as HTMLElement).click());
    expect(editor().state.doc.lineAt(editor().state.selection.main.head).number).toBe(first?.line);
  });

  it("holds a draft with errors, and offers what the checker proposes as a button", async () => {
    const broken: Checked = structuredClone(fixture("answers").check_broken.value);
    const first = broken.diagnostics[0] as Checked["diagnostics"][number];
    first.severity = "error";
    first.fix = "store";
    kernel.answers.check = () => broken;
    await type("\n# more");
    await settle();
    expect(button("Apply and continue").getAttribute("aria-disabled")).toBe("true");
    await press("Enter", { ctrlKey: true });
    await settle();
    expect(kernel.acts).toEqual([]);
    await act(() => button("Change to store").click());
    expect(text()).not.toBe(`${kernel.traits.texts.sketch}\n# more`);
    expect(text()).toContain("store");
    await settle();
    await act(() => button("Apply anyway").click());
    await settle();
    expect(kernel.acts).toHaveLength(1);
  });

  it("applies a draft once, with the turn that it was derived from", async () => {
    await type("\n");
    expect(panel().dataset.standing).toBe("edited");
    const mine = text();
    await press("Enter", { ctrlKey: true });
    await press("Enter", { ctrlKey: true });
    await settle();
    expect(kernel.acts).toEqual([{ action: "sketch", text: mine, base: kernel.traits.texts.turn }]);
    kernel.put("texts", { sketch: mine, turn: "t18" });
    kernel.put("head", { current: "t18" });
    await settle();
    expect(panel().dataset.standing).toBe("same");
    expect(text()).toBe(mine);
  });

  it("follows on from an edit of the head, also where that turn was looked at", async () => {
    kernel.put("shown", kernel.traits.texts.turn as string);
    await settle();
    expect(view.following.value).toBe(false);
    await type("\n");
    await act(() => button("Apply and continue").click());
    await settle();
    expect(kernel.acts).toHaveLength(1);
    expect(kernel.traits.shown).toBe("");
  });

  it("keeps the draft when the kernel refuses it, and says why", async () => {
    kernel.refusal = "The session has ended. Run the cell again.";
    await type("\n");
    const mine = text();
    await act(() => button("Apply and continue").click());
    await settle();
    expect(root.querySelector("[role=alert]")?.textContent).toContain(kernel.refusal);
    expect(text()).toBe(mine);
    expect(panel().dataset.standing).toBe("edited");
  });

  it("keeps the draft when the session gets another sketch, and lets the person choose", async () => {
    await type("\n# mine");
    const mine = text();
    const theirs = `${kernel.traits.texts.sketch}# theirs\n`;
    kernel.put("head", { current: "t18" });
    kernel.put("texts", { sketch: theirs, turn: "t18" });
    await settle();
    expect(panel().dataset.standing).toBe("overtaken");
    expect(text()).toBe(mine);
    expect(button("Apply and continue").getAttribute("aria-disabled")).toBe("true");
    await act(() => button("Show the difference").click());
    const changed = [...root.querySelectorAll(".cm-changedLine")].map((line) => line.textContent);
    expect(changed).toContain("# mine");
    await act(() => button("Apply mine").click());
    await settle();
    expect(kernel.acts).toEqual([{ action: "sketch", text: mine, base: "t18" }]);
  });

  it("takes theirs, and an undo brings mine back", async () => {
    await type("\n# mine");
    const mine = text();
    kernel.put("head", { current: "t18" });
    kernel.put("texts", { sketch: "sketch a {\n}\n", turn: "t18" });
    await settle();
    await act(() => button("Take theirs").click());
    expect(text()).toBe("sketch a {\n}\n");
    await press("z", { ctrlKey: true });
    expect(text()).toBe(mine);
  });

  it("undoes what the person did, and not what the session did", async () => {
    const theirs = `${kernel.traits.texts.sketch}# theirs\n`;
    kernel.put("head", { current: "t18" });
    kernel.put("texts", { sketch: theirs, turn: "t18" });
    await settle();
    await type("# mine", 0);
    for (let step = 0; step < 3; step += 1) await press("z", { ctrlKey: true });
    expect(text()).toBe(theirs);
  });

  it("keeps the draft while another turn is looked at, and over a change of panel", async () => {
    await type("\n# mine");
    const mine = text();
    kernel.put("shown", "t4");
    await settle();
    expect(text()).toBe(mine); // the texts of that turn are not here yet
    kernel.put("texts", { sketch: "sketch old {\n}\n", turn: "t4" });
    await settle();
    expect(text()).toBe("sketch old {\n}\n");
    expect(panel().dataset.standing).toBe("same");
    await hide();
    kernel.put("shown", "");
    kernel.put("texts", { ...fixture("pinned").texts });
    await show();
    await settle();
    expect(text()).toBe(mine);
    expect(panel().dataset.standing).toBe("edited");
  });

  it("keeps the draft over a reload of the page", async () => {
    await type("\n# mine");
    const mine = text();
    await hide();
    const reloaded = new View(kernel);
    await show(reloaded);
    await settle();
    expect(text()).toBe(mine);
    reloaded.dispose();
  });

  it("is read only where the session takes no edit", async () => {
    kernel.put("head", { can: { ...kernel.traits.head.can, edit: false } });
    await settle();
    expect(editor().state.readOnly).toBe(true);
    expect(editor().contentDOM.getAttribute("aria-readonly")).toBe("true");
    expect(root.textContent).toContain("Read only.");
    kernel.put("head", { status: "running", can: { ...kernel.traits.head.can, edit: false } });
    await settle();
    expect(root.textContent).toContain("Read only while the session works.");
  });

  it("pins by the session while the text is its own, and in the draft else", async () => {
    const line = editor().state.doc.line(2);
    await act(() => editor().dispatch({ selection: { anchor: line.from } }));
    await press("p", { altKey: true, keyCode: 80 } as KeyboardEventInit);
    await settle();
    expect(kernel.acts).toEqual([{ action: "pin", line: 2, on: true }]);
    await type("\n# mine");
    await press("p", { altKey: true, keyCode: 80 } as KeyboardEventInit);
    expect(kernel.acts).toHaveLength(1);
    expect(editor().state.doc.line(2).text).toMatch(/ {2}#: pin$/);
    expect(root.querySelectorAll("[data-pinned]").length).toBeGreaterThan(0);
  });

  it("says that a line has nothing to pin", async () => {
    await act(() => editor().dispatch({ selection: { anchor: 0 } }));
    await press("p", { altKey: true, keyCode: 80 } as KeyboardEventInit);
    expect(kernel.acts).toEqual([]);
    expect(view.notice.value?.text).toContain("Line 1 cannot be pinned");
  });

  it("lets no key out to the notebook", async () => {
    const heard = vi.fn();
    document.body.addEventListener("keydown", heard);
    for (const key of ["a", "d", "Escape", "Tab"]) await press(key);
    document.body.removeEventListener("keydown", heard);
    expect(heard).not.toHaveBeenCalled();
    expect(root.querySelector("[data-lm-suppress-shortcuts]")).not.toBeNull();
  });

  it("goes to the place that another panel opened", async () => {
    await act(() => view.open("sketch", { line: 3 }));
    await settle();
    expect(editor().state.doc.lineAt(editor().state.selection.main.head).number).toBe(3);
    expect(view.place.value).toBeNull();
    editor().contentDOM.blur(); // happy-dom reports a focused editor's selection in the middle of a change
    await act(() => view.open("sketch", { line: 9999 }));
    await settle();
    expect(editor().state.selection.main.head).toBe(editor().state.doc.line(editor().state.doc.lines).from);
  });

  it("shows the difference to the sketch before", async () => {
    const select = root.querySelector("select") as HTMLSelectElement;
    await act(() => {
      select.value = "parent";
      select.dispatchEvent(new Event("change", { bubbles: true }));
    });
    expect(root.querySelector(".cm-changedLine")).not.toBeNull();
  });
});

describe("a sketch that no checker answers for, as on a shared page", () => {
  it("is said neither to be free of findings nor to have errors", async () => {
    const alone = new Kernel();
    const other = viewOf(alone);
    delete alone.answers.check;
    await show(other);
    await settle();
    expect(root.textContent).toContain("no answer");
    expect(root.textContent).not.toContain("no findings");
    expect(root.textContent).not.toContain("no cost while");
    other.dispose();
  });
});

describe("a sketch that the checker refused", () => {
  it("shows the findings of its turn's record, each once", async () => {
    const refused = new Kernel("unparsable");
    const other = viewOf(refused);
    const found = refused.traits.detail.diagnostics;
    refused.answers.check = () => ({ diagnostics: found, cost: [], pins: [] });
    await show(other);
    await settle();
    expect(root.querySelectorAll(".kl-ed-findings li")).toHaveLength(found.length);
    expect(root.textContent).toContain("no cost while the sketch has errors");
    other.dispose();
  });
});
