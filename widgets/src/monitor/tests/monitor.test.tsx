import { EditorView } from "@codemirror/view";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it, vi } from "vitest";
// @ts-expect-error a script of the pages without a kernel
import { answers, figures, head, row, rows } from "../../../dev/run.js";
import { Kernel, rest } from "../../../tests/kernel";
import widget from "../monitor";
import { nearest, picture } from "../picture";
import type { Head, Row } from "../protocol";
import { fate, figureOf } from "../row";
import { alsoParentOf, arranged, lineage, offspring } from "../table";
import { MonitorView } from "../view";

const all = rows(40) as Row[];
const BY_NUMBER = new Map(all.map((one) => [one.number, one]));

class Search extends Kernel {
  given = [...all];
  constructor() {
    super({ head: head(all), figures: figures(all), version: all.length, beat: 0 });
  }
  override send(content: unknown): void {
    super.send(content);
    const { id, body } = content as { id: string; body: { ask?: string; since?: number } };
    if (body.ask === "rows") {
      const since = body.since ?? 0;
      const found = this.given.slice(since, since + 15);
      this.reply({ kind: "answer", id, value: { since, version: since + found.length, rows: found } });
    } else if (body.ask) this.reply({ kind: "answer", id, value: answers[body.ask](body) });
  }
}

// happy-dom draws nothing
HTMLCanvasElement.prototype.getContext = (() => null) as never;

let close = () => {};
afterEach(() => close());

async function show() {
  const kernel = new Search();
  const el = document.createElement("div");
  document.body.append(el);
  let dispose = () => {};
  await act(async () => {
    dispose = widget.render({ model: kernel, el });
    await rest(20);
  });
  close = () => {
    dispose();
    el.remove();
  };
  const find = (selector: string) => {
    const found = el.querySelector<HTMLElement>(selector);
    if (!found) throw new Error(`nothing matches ${selector}`);
    return found;
  };
  const does = (what: () => void) =>
    act(async () => {
      what();
      await rest(120);
    });
  return { kernel, el, find, does, click: (selector: string) => does(() => find(selector).click()) };
}

const numbers = (el: HTMLElement) =>
  [...el.querySelectorAll<HTMLElement>("[data-number]")].map((one) => Number(one.dataset.number));

describe("rows", () => {
  it("asks for all rows in parts, and takes what arrives afterwards without asking again", async () => {
    const { kernel, el, find, does } = await show();
    const asked = () =>
      kernel.sent.filter(({ body }) => "ask" in body && (body as { ask: string }).ask === "rows").length;
    expect(find(".kl-candidates").textContent).toContain("40 candidates");
    expect(asked()).toBe(3);
    const fresh = { ...row(40), value: 9, low: 8, high: 10, state: "verified" } as Row;
    await does(() => {
      kernel.given.push(fresh);
      kernel.reply({ kind: "rows", since: 40, version: 41, rows: [fresh] });
      kernel.put("version" as never, 41);
    });
    expect(asked()).toBe(3);
    expect(numbers(el)[0]).toBe(40);
  });

  it("asks for what a lost message held", async () => {
    const { kernel, find, does } = await show();
    const lost = [row(40), row(41)] as Row[];
    await does(() => {
      kernel.given.push(...lost);
      kernel.reply({ kind: "rows", since: 41, version: 42, rows: [lost[1]] });
      kernel.put("version" as never, 42);
    });
    expect(find(".kl-candidates").textContent).toContain("42 candidates");
  });

  it("draws what arrives in a moment at once, the more of it the more there are", async () => {
    const kernel = new Search();
    const view = new MonitorView(kernel);
    kernel.reply({ kind: "rows", since: 0, version: 2000, rows: rows(2000) });
    const told = view.changes.value;
    for (let more = 0; more < 10; more += 1) {
      kernel.reply({ kind: "rows", since: 2000 + more, version: 2001 + more, rows: [row(2000 + more)] });
    }
    expect(view.rows.size).toBe(2010);
    expect(view.changes.value).toBe(told);
    await new Promise((done) => setTimeout(done, 260));
    expect(view.changes.value).toBe(told + 1);
    view.dispose();
  });

  it("says how long it has worked and about how long it still takes", async () => {
    const { kernel, find, does } = await show();
    const pace = { began: Date.now() / 1000 - 65, spent: 60, left: 120, tokens: "" };
    await does(() => kernel.put("head" as never, { ...head(all), ...pace, status: "running" }));
    expect(find(".kl-mon-pace").textContent).toMatch(/^1 min 0\d s so far, about 2 min left$/);
    await does(() => kernel.put("head" as never, { ...head(all), ...pace, status: "finished", left: null }));
    expect(find(".kl-mon-pace").textContent).toBe("1 min 00 s");
    const untold = { status: "finished", left: null, tokens: "tokens not reported" };
    await does(() => kernel.put("head" as never, { ...head(all), ...pace, ...untold }));
    expect(find(".kl-mon-pace").textContent).toBe("1 min 00 s, tokens not reported");
  });

  it("leaves no listener behind", async () => {
    const { kernel } = await show();
    close();
    expect(kernel.listeners()).toBe(0);
  });
});

describe("the table", () => {
  it("is sorted by a click, the best first for a modelled time too", () => {
    const best = arranged(all, { column: "value", down: true }, "good", "speedup");
    const lower = (one: Row) => one.low || one.value || 0;
    expect(lower(best[0] as Row)).toBe(Math.max(...best.map(lower)));
    expect(arranged(all, { column: "value", down: true }, "good", "modelled")[0]).toBe(best.at(-1));
    const failed = arranged(all, { column: "value", down: true }, "all", "speedup").at(-1);
    expect(failed?.value).toBeNull();
  });

  it("orders by the lower end of the interval, as a session does", () => {
    const [first] = all.filter((row) => row.value);
    const shaken = { ...first, number: 900, value: 1.52, low: 0.89, high: 4.36 } as Row;
    const steady = { ...first, number: 901, value: 1.41, low: 1.26, high: 1.55 } as Row;
    const order = { column: "value", down: true } as const;
    expect(arranged([shaken, steady], order, "all", "speedup")).toEqual([steady, shaken]);
  });

  it("chooses by arrow keys, marks by Space, and compares the two that are marked", async () => {
    const { kernel, el, find, does, click } = await show();
    const key = (name: string) =>
      does(() => find(".kl-mon-table").dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true })));
    await key("Home");
    await key(" ");
    await key("ArrowDown");
    await key(" ");
    const [a, b] = numbers(el);
    expect(find(".kl-mon-chosen strong").textContent).toBe(`Candidate ${b}`);
    await click("[data-action=compare]");
    await does(() => {});
    expect(kernel.sent.at(-1)?.body).toEqual({ ask: "compare", a, b });
    expect(find(".kl-mon-panel-compare").textContent).toContain("1.21 times as fast");
  });

  it("says the step that a candidate failed, and figures with their interval", () => {
    const good = all.find((one) => one.value !== null) as Row;
    expect(figureOf({ ...good, value: 1.5, low: 1.41, high: 1.62 }, "speedup")).toBe("1.50x [1.41, 1.62]");
    expect(figureOf({ ...good, value: 0.00983 }, "modelled")).toBe("0.00983 ms");
    expect(fate({ ...good, state: "failed", step: "gate" })).toBe("failed at gate");
  });
});

describe("decisions", () => {
  it("offers to remember what an ended search has verified", async () => {
    const { kernel, el, does, click } = await show();
    expect(el.querySelector("[data-action=remember]")).toBeNull();
    await does(() => kernel.head({ status: "finished", can: { remember: true } } as never));
    await click("[data-action=remember]");
    expect(kernel.acts().at(-1)).toEqual({ action: "remember" });
  });

  it("sends each as its action, and shows a refusal as a sentence", async () => {
    const { kernel, find, does, click } = await show();
    await click("[data-action=pause]");
    expect(kernel.acts().at(-1)).toEqual({ action: "pause" });
    await does(() => kernel.done("The run is finished. Begin another one."));
    expect(find(".kl-notice-error").textContent).toContain("Begin another one");
    await click("[data-action=protect]");
    expect(kernel.acts().at(-1)).toEqual({ action: "protect", number: head(all).best });
    await click("[data-action=thaw-3]");
    expect(kernel.acts().at(-1)).toEqual({ action: "thaw", island: 3 });
  });

  it("takes a proposed direction up as it was edited, or refuses it", async () => {
    const { kernel, el, find, does, click } = await show();
    const heads = () => find(".kl-head").textContent;
    const before = heads();
    const propose = (suggestion: string) => does(() => kernel.head({ suggestion } as never));
    await propose("No gain for 2 rounds. Little tried: cross.");
    expect(heads(), "the header's buttons stay where they are").toBe(before);
    expect(find("[id$=-analyst][role=tab]").textContent).toContain("new direction");
    await click("[id$=-analyst][role=tab]");
    const area = find("textarea[aria-label='proposed direction']") as HTMLTextAreaElement;
    expect(area.value).toContain("Little tried: cross");
    await does(() => {
      area.value = "Try the online form.";
      area.dispatchEvent(new Event("input", { bubbles: true }));
    });
    expect(find("[data-action=accept]").textContent).toBe("Accept as edited");
    await click("[data-action=accept]");
    expect(kernel.acts().at(-1)).toEqual({ action: "accept", text: "Try the online form." });
    await propose("");
    expect(el.querySelector(".kl-mon-proposed")).toBeNull();
    await propose("Another way.");
    expect((find("textarea[aria-label='proposed direction']") as HTMLTextAreaElement).value).toBe("Another way.");
    await click("[data-action=refuse]");
    expect(kernel.acts().at(-1)).toEqual({ action: "refuse" });
  });

  it("injects the sketch that was typed, and keeps it when the kernel refuses", async () => {
    const { kernel, find, does, click } = await show();
    const editor = () => EditorView.findFromDOM(find(".cm-editor")) as EditorView;
    const type = (insert: string) =>
      does(() => editor().dispatch({ changes: { from: 0, to: editor().state.doc.length, insert } }));
    await type("sketch mine {}");
    await click("[data-action=inject]");
    expect(kernel.acts().at(-1)).toEqual({ action: "inject", text: "sketch mine {}", island: 0, why: "" });
    await does(() => kernel.done("No."));
    expect(editor().state.doc.toString()).toBe("sketch mine {}");
    await click("[data-action=inject]");
    // the checker is asked meanwhile, so the decision is not the last message
    const sent = kernel.sent.findLast(({ body }) => "action" in body);
    await does(() => kernel.reply({ kind: "done", id: sent?.id }));
    expect(editor().state.doc.toString()).toBe("");
  });

  it("does not send a sketch with errors: they are listed, and the first has the caret", async () => {
    const { kernel, find, does, click } = await show();
    const editor = () => EditorView.findFromDOM(find(".cm-editor")) as EditorView;
    const before = kernel.acts().length;
    await does(() => editor().dispatch({ changes: { from: 0, insert: "sketch mine {\n    oops\n}" } }));
    expect(find("[aria-label='findings of the checker']").textContent).toContain("Not a statement.");
    expect(find("[data-action=inject]").getAttribute("aria-disabled")).toBe("true");
    await click("[data-action=inject]");
    const press = { key: "Enter", ctrlKey: true, bubbles: true, cancelable: true };
    await does(() => editor().contentDOM.dispatchEvent(new KeyboardEvent("keydown", press)));
    expect(kernel.acts().length).toBe(before);
    expect(editor().state.doc.lineAt(editor().state.selection.main.head).number).toBe(2);
  });
});

describe("the chart", () => {
  const drawn = (by: "evaluation" | "round") =>
    picture({ rows: all, head: head(all), rounds: figures(all).rounds, by, width: 600, height: 300 });

  it("has each candidate that has a value as a point, and the others at its foot", () => {
    const { places, failed, lines, foot, top } = drawn("evaluation");
    expect(places.length + failed.length).toBe(all.length);
    expect(failed.every((one) => one.y === foot)).toBe(true);
    expect(places.every((one) => one.y >= top && one.y <= foot)).toBe(true);
    const by = Object.fromEntries(lines.map((line) => [line.name.replace(/^[\u2191\u2193] |,.*$/g, ""), line.y]));
    expect((by.bound as number) <= (by.compile as number) && (by.compile as number) <= (by.eager as number)).toBe(true);
  });

  it("steps up where a better one was verified", () => {
    const { steps } = drawn("evaluation");
    for (const [index, [x, y]] of steps.slice(1).entries()) {
      const [left, before] = steps[index] as [number, number];
      expect(x).toBeGreaterThanOrEqual(left);
      expect(y).toBeLessThanOrEqual(before);
    }
  });

  it("has an axis where all values are close together", () => {
    const close = all.filter((one) => one.value !== null).map((one, at) => ({ ...one, value: 0.0114 + at / 1e5 }));
    const { up } = picture({
      rows: close,
      head: { measure: "modelled", lines: [], improvements: [] },
      rounds: [],
      by: "evaluation",
      width: 600,
      height: 300,
    });
    expect(up.length).toBeGreaterThan(1);
    expect(new Set(up.map(({ text }) => text)).size).toBe(up.length);
  });

  it("shows how candidates differ: a level that is far from all of them is an arrow at the edge", () => {
    const all = rows(30).map((row: Row) => ({
      ...row,
      value: 1 + row.number / 100,
      low: 0.9,
      high: 1.4,
      state: "verified" as const,
    }));
    const lines = [
      { name: "eager", value: 1 },
      { name: "bound", value: 40 },
    ];
    const drawn = picture({
      rows: all,
      head: { ...head(all), lines },
      rounds: [],
      by: "evaluation",
      width: 600,
      height: 300,
    });
    expect(drawn.lines.map(({ name }) => name)).toEqual(["eager", expect.stringMatching(/^\u2191 bound, 40/)]);
    const ys = drawn.places.map(({ y }) => y);
    expect(Math.max(...ys) - Math.min(...ys)).toBeGreaterThan(0.3 * (drawn.foot - drawn.top));
    expect(drawn.places.every(({ span }) => span !== null && span[0] >= span[1])).toBe(true);
    // an interval lies within the axes, with some room
    const ends = drawn.places.flatMap(({ span }) => span as [number, number]);
    expect(Math.min(...ends)).toBeGreaterThan(drawn.top);
    expect(Math.max(...ends)).toBeLessThan(drawn.foot);
  });

  it("has an interval for each candidate that was timed, and none where a model of costs ranks", () => {
    const states = ["verified", "passed", "dropped", "flagged"] as const;
    const timed = states.map((state, at) => ({ ...(all[at] as Row), at, value: 2, low: 1.9, high: 2.2, state }));
    const spans = (measure: Head["measure"]) => {
      const shown = { ...head(timed), measure };
      const { places } = picture({ rows: timed, head: shown, rounds: [], by: "evaluation", width: 600, height: 300 });
      return places.filter(({ span }) => span !== null).length;
    };
    expect(spans("speedup")).toBe(4);
    expect(spans("modelled")).toBe(0);
  });

  it("shows no axis before anything is timed, which would be read as figures", async () => {
    const waiting = all.map((row) => ({ ...row, value: null, low: null, high: null }));
    const { up, across, lines } = picture({
      rows: waiting,
      head: { ...head(all), lines: [{ name: "eager", value: 1 }] },
      rounds: [],
      by: "evaluation",
      width: 600,
      height: 300,
    });
    expect([up, across, lines]).toEqual([[], [], []]);
  });

  it("puts the candidates of a round next to each other", () => {
    const { places } = drawn("round");
    const seeds = places.filter((one) => one.number < 4);
    expect(new Set(seeds.map((one) => one.x)).size).toBe(seeds.length);
    expect(Math.max(...seeds.map((one) => one.x))).toBeLessThan(
      Math.min(...places.filter((one) => one.number > 3).map((one) => one.x)),
    );
  });

  it("finds the point under the mouse and none far away", () => {
    const { places } = drawn("evaluation");
    const one = places[3];
    if (!one) throw new Error("too few");
    expect(nearest(places, one.x + 1, one.y - 1)).toBe(one);
    expect(nearest(places, -500, -500)).toBeNull();
  });
});

describe("the lineage of the chosen candidate", () => {
  it("is a tree from its seed, and each edge shows what it changed", async () => {
    const { kernel, el, find, does, click } = await show();
    const child = all.find((one) => one.parents.length > 0 && (offspring(BY_NUMBER).get(one.number)?.length ?? 0) > 0);
    if (!child) throw new Error("no candidate has both a parent and children");
    const row = find(`.kl-mon-row[data-number="${child.number}"]`);
    await does(() => row.dispatchEvent(new MouseEvent("mousedown", { bubbles: true, cancelable: true })));
    await does(() => {}); // the choice settles first
    const line = lineage(BY_NUMBER, child.number);
    const open = [...el.querySelectorAll(".kl-mon-lineage .kl-link")].map((one) => Number(one.textContent));
    expect(open).toEqual(line.map((one) => one.number));
    const folded = [...el.querySelectorAll<HTMLDetailsElement>(".kl-mon-lineage details")];
    expect(folded.map((one) => one.textContent)).toContain(
      `children: ${offspring(BY_NUMBER).get(child.number)?.length}`,
    );
    await does(() => {
      const last = folded.at(-1) as HTMLDetailsElement;
      last.open = true;
      last.dispatchEvent(new Event("toggle"));
    });
    expect(el.querySelectorAll(".kl-mon-lineage .kl-link").length).toBeGreaterThan(line.length);
    await click("[data-action=edge]");
    expect(kernel.sent.at(-1)?.body).toEqual({ ask: "compare", a: line[0]?.number, b: line[1]?.number });
    await does(() => {});
    expect(find(".kl-mon-lineage .kl-diff .kl-added").textContent).toContain("BLOCK = 64");
  });
});

it("says other children only next to one that is shown", async () => {
  const { kernel, el, does } = await show();
  const [seed] = lineage(BY_NUMBER, head(all).best as number);
  const more = [
    { ...row(40), parents: [seed?.number] },
    { ...row(41), parents: [40] },
  ] as Row[];
  await does(() => {
    kernel.given.push(...more);
    kernel.reply({ kind: "rows", since: 40, version: 42, rows: more });
    kernel.put("version" as never, 42);
  });
  const folds = () => [...el.querySelectorAll<HTMLDetailsElement>(".kl-mon-lineage details")];
  const first = folds().findLast((one) => one.textContent?.startsWith("other children: "));
  await does(() => {
    if (first) first.open = true;
    first?.dispatchEvent(new Event("toggle"));
  });
  const below = [...(first?.querySelectorAll("details") ?? [])].map((one) => one.textContent);
  expect(below).toContain("children: 1");
  expect(below.join()).not.toContain("other");
});

it("names those that a candidate is a further parent of", async () => {
  const { kernel, find, does } = await show();
  const best = head(all).best as number;
  const cross = { ...row(40), parents: [3, best] } as Row;
  await does(() => {
    kernel.given.push(cross);
    kernel.reply({ kind: "rows", since: 40, version: 41, rows: [cross] });
    kernel.put("version" as never, 41);
  });
  expect(find(".kl-mon-chosen").textContent).toContain("Also parent of: 40");
  expect(alsoParentOf(new Map([[40, cross]]), 3)).toEqual([]);
});

it("follows a candidate back to its seed", () => {
  const line = lineage(BY_NUMBER, 39);
  expect(line.at(-1)?.number).toBe(39);
  expect(line[0]?.parents).toEqual([]);
  for (const [index, one] of line.slice(1).entries()) expect(one.parents[0]).toBe(line[index]?.number);
});

it("says that nothing can be injected after the end", async () => {
  const { kernel, find, does } = await show();
  await does(() => find("[role=tab][id$=-steer]").click());
  expect(find(".kl-mon-panel-steer").textContent).not.toContain("The search has ended");
  const now = head(all);
  await does(() => kernel.put("head" as never, { ...now, can: { ...now.can, steer: false } }));
  expect(find(".kl-mon-panel-steer").textContent).toContain("Begin another one to inject a sketch.");
  expect(find("[data-action=inject]").dataset.tip).toBe("The search has ended");
});

it("says that what passed is not verified while there is no best", async () => {
  const { kernel, find, does } = await show();
  await does(() => kernel.put("head" as never, { ...head(all), best: null, best_text: "", first_text: "" }));
  expect(find(".kl-figures").textContent).toContain("no candidate of this search is verified yet");
  await does(() => {});
  expect(find(".kl-mon-chosen").textContent).toContain("once one is verified");
});

it("keeps the focus when the table makes way for another panel", async () => {
  const { find, does } = await show();
  const table = find(".kl-mon-table");
  table.focus();
  expect(document.activeElement).toBe(table);
  await does(() => find("[role=tab][id$=-ledger]").click());
  await does(() => new Promise((done) => setTimeout(done, 20)));
  expect(document.activeElement).toBe(find(".kl-mon"));
});

it("names the candidates that are tied with the best", async () => {
  const { kernel, find, does } = await show();
  await does(() => kernel.put("head" as never, { ...head(all), best: 4, tied: [] }));
  expect(find(".kl-figures").textContent).not.toContain("tied");
  await does(() => kernel.put("head" as never, { ...head(all), best: 4, tied: [3, 1] }));
  expect(find(".kl-figures").textContent).toContain("tied with 3, 1");
  await does(() => kernel.put("head" as never, { ...head(all), best: 4, tied: [9, 8, 7, 6, 5, 3, 2] }));
  expect(find(".kl-figures").textContent).toContain("tied with 9, 8, 7, 6, 5 and 2 more");
});

it("takes no request to other hosts", async () => {
  const fetched = vi.spyOn(globalThis, "fetch");
  await show();
  expect(fetched).not.toHaveBeenCalled();
});
