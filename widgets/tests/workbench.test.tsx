import { afterEach, describe, expect, it, vi } from "vitest";
import { ANSWER_MS } from "../src/link";
import { verdictOf } from "../src/panels/verdict";
import type { Card, Head, TurnRow, VerdictView } from "../src/protocol";
import { rowsOf } from "../src/rows";
import { AGAIN_MS } from "../src/ui";
import { BUSY_MS } from "../src/view";
import { dump, Kernel, rest, type Shown, show } from "./kernel";

let shown: Shown;
afterEach(() => {
  shown.close();
  vi.useRealTimers();
});

const open = async (name = "designed", change: Partial<Head> = {}) => {
  const traits = dump(name);
  shown = await show(new Kernel({ ...traits, head: { ...traits.head, ...change } }));
  return shown;
};

const ROUTE: Card = {
  id: "t4:route",
  kind: "route",
  role: "conductor",
  title: "The Conductor proposes: coder.",
  text: "edge",
  hint: "",
  evidence: ["failing case: N=65"],
  to: "coder",
  suggestion: "mask it",
  pending: true,
  editable: true,
  retry: true,
};
const waiting = (card: Partial<Card> = {}): Partial<Head> => ({
  status: "waiting",
  status_text: "waiting for you",
  card: { ...ROUTE, ...card },
});

describe("the header", () => {
  it("says what, for what, how far and how fast, each number with its meaning", async () => {
    await open();
    expect(shown.text(".kl-name")).toBe("rms_norm");
    expect(shown.text(".kl-operator")).toContain("f32 [M, N]");
    expect(shown.text("[role=status]")).toBe("finished");
    const best = shown.kernel.traits.head as Head;
    expect(shown.text(".kl-figures")).toContain(best.best?.speedups[0]?.text);
    for (const figure of shown.all(".kl-figures .kl-tipped")) {
      expect(figure.dataset.tip?.length).toBeGreaterThan(2);
      expect(figure.tabIndex).toBe(0);
    }
    expect(shown.find("[role=meter]").getAttribute("aria-valuetext")).toContain("of bound");
  });

  it("offers to measure the designs where a session ends without it", async () => {
    const ended: Card = { ...ROUTE, title: "The Conductor proposed: finish.", to: "finish", pending: false };
    const { can } = dump("designed").head;
    await open("designed", { card: ended, can: { ...can, tune: false } });
    expect(shown.all("[data-action=tune]")).toHaveLength(0);
    await shown.change(() => shown.kernel.head({ can: { ...can, tune: true } }));
    await shown.click("[data-action=tune]");
    expect(shown.kernel.acts()).toEqual([{ action: "tune" }]);
    await shown.change(() => shown.kernel.head({ card: { ...ended, to: "coder" } }));
    expect(shown.all("[data-action=tune]")).toHaveLength(0);
  });

  it("speaks the question together with the word that somebody is asked", async () => {
    await open("designed", waiting({ title: "The Coder is done.", text: "source kernel.cpp" }));
    expect(shown.text("[role=status]")).toBe("waiting for you. The Coder is done. source kernel.cpp");
    await shown.change(() => shown.kernel.head({ card: null, status: "running", status_text: "running" }));
    expect(shown.text("[role=status]")).toBe("running");
  });

  it("does without figures while there are none", async () => {
    await open("verifying");
    expect(shown.text(".kl-figures")).toContain("no verified candidate yet");
  });

  it("calls a candidate that is slower than eager the fastest, not the best", async () => {
    const { best } = dump("designed").head;
    if (!best) throw new Error("the session has a best candidate");
    const eager = { ...best.speedups[0], baseline: "eager", value: 0.04, low: 0.03, high: 0.05, text: "0.04x eager" };
    await open("designed", { best: { ...best, speedups: [eager as (typeof best.speedups)[0]] }, call: "" });
    expect(shown.text("[data-action=look-best]")).toBe(`fastest #${best.number}`);
    expect(shown.text("[data-action=take]")).toBe("Figures");
    await shown.click("[data-action=take]");
    expect(shown.all("[data-action=export]")).toHaveLength(0);
    expect(shown.all("[data-action=export-csv]")).toHaveLength(1);
  });

  it("shows a decision that could not be carried out", async () => {
    await open("designed", { message: "The session has ended. Fork it to go on." });
    expect(shown.text(".kl-notices")).toContain("Fork it to go on");
  });
});

describe("the buttons", () => {
  it("send their decision once, however often they are clicked", async () => {
    await open("designed", {
      can: {
        step: true,
        run: true,
        pause: false,
        fork: true,
        undo: false,
        stop: true,
        approve: false,
        edit: true,
        tune: false,
      },
    });
    await shown.click("[data-action=step]");
    await shown.click("[data-action=step]");
    expect(shown.kernel.acts()).toEqual([{ action: "step" }]);
    await shown.change(() => shown.kernel.done());
    await shown.click("[data-action=step]");
    expect(shown.kernel.acts()).toHaveLength(2);
  });

  it("that do nothing now are marked, and stay reachable", async () => {
    await open();
    expect(shown.find("[data-action=pause]").getAttribute("aria-disabled")).toBe("true");
    await shown.click("[data-action=pause]");
    expect(shown.kernel.acts()).toEqual([]);
  });

  it("fork from the turn that is looked at", async () => {
    await open();
    await shown.change(() => shown.kernel.put("shown", "t2"));
    await shown.click("[data-action=fork]");
    expect(shown.kernel.acts()).toEqual([{ action: "fork", turn: "t2" }]);
    // a refusal leaves what is looked at; after a fork the turns that come are followed
    await shown.change(() => shown.kernel.done("It is running."));
    expect(shown.kernel.get("shown")).toBe("t2");
    await shown.click("[data-action=fork]");
    await shown.change(() => shown.kernel.done());
    await vi.waitFor(() => expect(shown.kernel.get("shown")).toBe(""));
  });

  it("change roles and policy when the kernel says so, not before", async () => {
    await open();
    const select = shown.find<HTMLSelectElement>(".kl-roles select");
    await shown.change(() => {
      select.value = "all";
      select.dispatchEvent(new Event("change", { bubbles: true }));
    });
    expect(shown.kernel.acts()).toEqual([{ action: "approval", value: "all" }]);
    expect(select.value).toBe("routing");
    await shown.change(() => shown.kernel.head({ approval: "all" }));
    expect(select.value).toBe("all");
  });

  it("send a note to a role", async () => {
    await open("designed", { roles: { designer: "model", coder: "rules", conductor: "rules" } });
    await shown.click("[data-action=note]");
    await shown.type(".kl-note-form textarea", "keep BLOCK <= 128");
    await shown.click("[data-action=send-note]");
    expect(shown.kernel.acts()).toEqual([{ action: "note", role: "designer", text: "keep BLOCK <= 128" }]);
  });
});

describe("the card", () => {
  it("shows what an agent would change with its indentation, and every answer", async () => {
    const evidence = ["--- kernel.cpp", "+++ kernel.cpp", "@@ -1 +1 @@", "-  a;", "+    b;"];
    await open("designed", waiting({ kind: "permission", evidence, editable: false, to: null }));
    const lines = shown.all(".kl-card .kl-diff > div");
    expect(lines.map((line) => line.textContent)).toEqual(evidence);
    expect(lines.map((line) => line.className).slice(2)).toEqual(["kl-dim", "kl-removed", "kl-added"]);
    await shown.click(".kl-card [data-action=permit-never]");
    expect(shown.kernel.acts()).toEqual([{ action: "approve", card: "t4:route", to: "never" }]);
  });

  it("approves with the suggestion as it was edited", async () => {
    await open("designed", waiting());
    expect(shown.text(".kl-evidence")).toContain("N=65");
    await shown.type(".kl-suggestion textarea", "mask both loads");
    await shown.click(".kl-card [data-action=approve]");
    expect(shown.kernel.acts()).toEqual([{ action: "approve", card: "t4:route", suggestion: "mask both loads" }]);
  });

  it.each(["designer", "me", "finish"])("sends it to %s instead", async (to) => {
    await open("designed", waiting());
    await shown.click(`[data-action=to-${to}]`);
    expect(shown.kernel.acts()).toEqual([{ action: "approve", card: "t4:route", to, suggestion: "mask it" }]);
  });

  it("keeps the words, the focus and the caret while updates arrive", async () => {
    await open("designed", waiting());
    const area = shown.find<HTMLTextAreaElement>(".kl-suggestion textarea");
    area.focus();
    await shown.type(".kl-suggestion textarea", "my own words");
    area.setSelectionRange(3, 3);
    await shown.change(() =>
      shown.kernel.head(waiting({ suggestion: "the kernel's newer words", evidence: ["more"] })),
    );
    expect(document.activeElement).toBe(area);
    expect([area.value, area.selectionStart]).toEqual(["my own words", 3]);
    await shown.click("[data-action=take-newer]");
    expect(area.value).toBe("the kernel's newer words");
  });

  it("keeps the words while another turn is looked at", async () => {
    await open("designed", waiting());
    await shown.type(".kl-suggestion textarea", "my own words");
    await shown.change(() => {
      shown.kernel.put("shown", "t2");
      shown.kernel.head({ card: null });
    });
    expect(shown.all(".kl-suggestion")).toEqual([]);
    await shown.click("[data-action=to-question]");
    await shown.change(() => shown.kernel.head(waiting()));
    expect(shown.find<HTMLTextAreaElement>(".kl-suggestion textarea").value).toBe("my own words");
  });

  it("can be answered again when the answer was refused, and only then", async () => {
    await open("designed", waiting());
    await shown.click(".kl-card [data-action=approve]");
    await shown.click("[data-action=to-designer]");
    expect(shown.kernel.acts()).toHaveLength(1);
    await shown.change(() => shown.kernel.done("The card is not open any more. Look at the newest turn."));
    expect(shown.text(".kl-card")).toContain("not open any more");
    await shown.click("[data-action=to-designer]");
    expect(shown.kernel.acts()).toHaveLength(2);
  });

  it("of a turn that failed says what to do", async () => {
    const traits = dump("designed");
    shown = await show(
      new Kernel({
        ...traits,
        head: { ...traits.head, ...waiting({ kind: "error", editable: false, to: null }) },
        detail: { ...traits.detail, error: "The server did not answer.", remedy: "Check base_url." },
      }),
    );
    expect(shown.text(".kl-card")).toContain("Check base_url.");
    expect(shown.text(".kl-card [data-action=approve]")).toBe("Try again");
  });

  it("offers no second try of what rules would answer the same, but the work itself", async () => {
    const card = { kind: "error", role: "designer", editable: false, to: null, retry: false } as const;
    await open("designed", waiting(card));
    expect(shown.all(".kl-card [data-action=approve]")).toHaveLength(0);
    expect(shown.text(".kl-card [data-action=to-me]")).toBe("Write the sketch yourself");
    await shown.click(".kl-card [data-action=to-me]");
    expect(shown.kernel.acts()[0]).toMatchObject({ action: "approve", to: "me" });
  });

  it("proposes the person's own hand where rules would replace what the person wrote", async () => {
    await open("designed", waiting({ to: "designer", retry: false, hint: "Correct your sketch." }));
    expect(shown.text(".kl-suggestion")).toContain("Correct your sketch.");
    expect(shown.find(".kl-card [data-action=to-me]").className).toContain("primary");
    expect(shown.find(".kl-card [data-action=to-me]").dataset.tip).toContain("You play the Designer from now on");
    expect(shown.find(".kl-card [data-action=approve]").className).not.toContain("primary");
  });

  it("opens the panel of what is to be approved", async () => {
    await open("designed", waiting({ kind: "turn", role: "coder", editable: false, to: null }));
    expect(shown.find("[role=tab][aria-selected=true]").textContent).toContain("Code");
  });

  it("says before one writes that rules read no words", async () => {
    const roles = { designer: "rules", coder: "model", conductor: "rules" };
    await open("designed", { ...waiting({ to: "designer" }), roles });
    expect(shown.text(".kl-suggestion")).toContain("read no words");
    await shown.click("[data-action=note]");
    // it begins with a role that reads notes
    const to = shown.find(".kl-note-form select") as HTMLSelectElement;
    expect(to.value).toBe("coder");
    to.value = "designer";
    to.dispatchEvent(new Event("change", { bubbles: true }));
    await shown.change(() => {});
    expect(shown.text(".kl-note-form")).toContain("read no notes");
    expect((shown.find(".kl-note-form textarea") as HTMLTextAreaElement).placeholder).toBe("");
    await shown.type(".kl-note-form textarea", "keep BLOCK small");
    expect(shown.find("[data-action=send-note]").getAttribute("aria-disabled")).toBe("true");
  });

  it("of a person's Conductor has a button for each way, and words for the next role", async () => {
    const traits = dump("brief");
    const card = { ...(traits.head.card as Card), role: "conductor", editable: true, to: null, suggestion: "" };
    await open("brief", { card });
    expect(shown.all("[data-action=approve]")).toHaveLength(0);
    await shown.type(".kl-suggestion textarea", "wider tiles");
    await shown.click("[data-action=to-designer]");
    expect(shown.kernel.acts()).toEqual([
      { action: "approve", card: card.id, to: "designer", suggestion: "wider tiles" },
    ]);
  });

  it("of a person's role asks again for a brief that a busy kernel did not send", async () => {
    const { card } = dump("brief").head;
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date"] });
    await open("brief", { card });
    const briefs = () => shown.kernel.sent.filter(({ body }) => "ask" in body && body.ask === "brief");
    expect(briefs()).toHaveLength(1);
    await shown.change(() => {
      for (let beat = 1; beat < 8; beat += 1) {
        vi.advanceTimersByTime(ANSWER_MS / 6);
        shown.kernel.put("beat", beat);
      }
    });
    expect(shown.all("[data-action=answer-in-panel]")).toHaveLength(0);
    shown.kernel.answers.brief = { role: "coder", text: "Write it.", expects: "code" };
    await shown.change(() => vi.advanceTimersByTime(AGAIN_MS + 100));
    await shown.change(() => {});
    expect(briefs()).toHaveLength(2);
    expect(shown.text("[data-action=answer-in-panel]")).toContain("Write it in the Code panel");
    // a refusal is an answer
    shown.kernel.answers = {};
    await shown.change(() => vi.advanceTimersByTime(4 * AGAIN_MS));
    expect(briefs()).toHaveLength(2);
  });

  it("of a person's role shows the brief and takes a pasted reply", async () => {
    const traits = dump("brief");
    const kernel = new Kernel(traits);
    kernel.answers.brief = { role: "coder", text: "You are the Coder. Write it.", expects: "code" };
    shown = await show(kernel);
    await shown.change(() => {});
    expect(shown.text(".kl-brief")).toContain("You are the Coder. Write it.");
    await shown.type(".kl-brief textarea", "```cpp\nint x;\n```");
    await shown.click("[data-action=answer]");
    expect(kernel.acts()).toEqual([{ action: "answer", card: traits.head.card?.id, text: "```cpp\nint x;\n```" }]);
    await shown.click("[data-action=answer-in-panel]");
    expect(shown.find("[role=tab][aria-selected=true]").textContent).toContain("Code");
  });
});

describe("the timeline", () => {
  it("is a tree whose rows say who, what and how it went", async () => {
    await open("brief");
    const items = shown.all("[role=treeitem]");
    expect(items.length).toBe((dump("brief").changed as TurnRow[]).length);
    expect(items.every((item) => item.getAttribute("aria-label")?.startsWith("turn "))).toBe(true);
    expect(shown.all("[aria-expanded=true]").length).toBeGreaterThan(0);
  });

  it("keep the focus when the panel that was typed in makes way for another", async () => {
    await open("designed");
    const bench = shown.find(".kl-bench");
    const editor = shown.find(".kl-panel-sketch .cm-content");
    editor.focus();
    expect(document.activeElement).toBe(editor);
    await shown.open("code");
    await rest(20);
    // from there each key counts: q goes to the question, e into the open editor
    expect(document.activeElement).toBe(bench);
    const search = shown.find<HTMLInputElement>(".kl-search input");
    search.focus();
    await shown.open("verdict");
    await rest(20);
    expect(document.activeElement).toBe(search);
  });

  it("moves by arrow keys without losing the focus", async () => {
    vi.useFakeTimers();
    await open();
    shown.find(".kl-tree").focus();
    await shown.key(".kl-tree", "ArrowUp");
    await shown.key(".kl-tree", "ArrowUp");
    vi.advanceTimersByTime(200);
    expect(shown.kernel.traits.shown).toBe("t2");
    expect(document.activeElement).toBe(shown.find(".kl-tree"));
    expect(
      shown.find(`#${shown.find(".kl-tree").getAttribute("aria-activedescendant")}`).getAttribute("aria-label"),
    ).toContain("turn 2");
  });

  it("folds a branch and filters", async () => {
    await open("brief");
    const all = shown.all("[role=treeitem]").length;
    await shown.change(() =>
      shown.find(".kl-fold-mark").dispatchEvent(new MouseEvent("mousedown", { bubbles: true, cancelable: true })),
    );
    expect(shown.all("[role=treeitem]").length).toBeLessThan(all);
    expect(shown.text(".kl-fold-mark")).toMatch(/\+\d/);
    await shown.type(".kl-search input", "verifier");
    expect(shown.all("[role=treeitem]").every((item) => item.getAttribute("aria-label")?.includes("verifier"))).toBe(
      true,
    );
  });

  it("draws only the rows in sight of thousands", async () => {
    const traits = dump("designed");
    const row = (traits.changed as TurnRow[])[0] as TurnRow;
    const many = Array.from({ length: 5000 }, (_, at) => ({
      ...row,
      id: `n${at}`,
      number: at + 1,
      parent: at ? `n${at - 1}` : null,
    }));
    shown = await show(new Kernel({ ...traits, turns: many, changed: [], head: { ...traits.head, current: "n0" } }));
    expect(shown.all("[role=treeitem]").length).toBeLessThan(60);
    expect(shown.find("[role=treeitem]").getAttribute("aria-setsize")).toBe("5000");
  });
});

describe("panels", () => {
  it("show a failure with its place, its numbers and the cell that reproduces it", async () => {
    await open("edge_tile");
    await shown.open("verdict");
    const words = shown.text(".kl-verdict");
    for (const part of ["Failed at correct", "First failing case", "N=65", "[0, 64]", "edge-tile", "reproduces"])
      expect(words).toContain(part);
    expect(shown.find(".kl-map svg").getAttribute("aria-label")).toContain("blocks wrong");
    expect(shown.all(".kl-stage-not-reached").length).toBeGreaterThan(0);
    await shown.click("[data-action=insert]");
    await vi.waitFor(
      () => expect(shown.kernel.acts()).toEqual([{ action: "insert", text: dump("edge_tile").texts.reproduction }]),
      20_000,
    );
  });

  it("show the stages while they run", async () => {
    await open("verifying");
    await shown.open("verdict");
    expect(shown.find("[aria-current=step]").textContent).toBeTruthy();
    expect(shown.text(".kl-verdict")).toContain("at work");
  });

  it("lead from a sketch to the verdict on its kernel, and offer no button that is off", async () => {
    const traits = dump("designed");
    const detail = { ...traits.detail, turn: "t1", verdict: null, judged: null, stages: [] };
    shown = await show(new Kernel({ ...traits, shown: "t1", detail }));
    await shown.open("verdict");
    expect(shown.text(".kl-panel-verdict")).toContain("has its verdict in turn 3.");
    await shown.click("[data-action=look-verdict]");
    expect(shown.kernel.traits.shown).toBe("t3");

    const row = (number: number, role: TurnRow["role"], state: TurnRow["state"]): TurnRow =>
      ({
        ...rowsOf(traits.turns, traits.changed)[0],
        id: `t${number}`,
        number,
        parent: `t${number - 1}`,
        role,
        state,
      }) as TurnRow;
    const rows = [
      row(1, "designer", "done"),
      row(2, "designer", "done"),
      row(3, "coder", "done"),
      row(4, "verifier", "running"),
    ];
    expect(verdictOf(rows, "t2")).toBeUndefined();
    rows[3] = row(4, "verifier", "failed");
    expect(verdictOf(rows, "t2")?.id).toBe("t4");
    expect(verdictOf(rows, "t3")?.id).toBe("t4");
    // the kernel was written from the newer sketch
    expect(verdictOf(rows, "t1")).toBeUndefined();
    expect(verdictOf(rows, null)).toBeUndefined();
  });

  it("say how a turn without a verdict gets one", async () => {
    const traits = dump("designed");
    const detail = { ...traits.detail, turn: "t1", verdict: null, judged: null, stages: [] };
    const only = rowsOf(traits.turns, traits.changed).filter((row) => row.id === "t1");
    const alone = { ...traits, turns: only, changed: [], detail };
    const can = { ...traits.head.can, step: true, run: true };
    const kernel = new Kernel({ ...alone, shown: "", head: { ...traits.head, current: "t1", can } });
    shown = await show(kernel);
    await shown.open("verdict");
    expect(shown.text(".kl-panel-verdict")).toContain("Step or Run lets the Verifier");
    await shown.change(() => kernel.head({ can: { ...can, step: false, run: false } }));
    expect(shown.text(".kl-panel-verdict")).toContain("Fork here, then Run, lets the Verifier");
    await shown.change(() => kernel.put("texts", { ...traits.texts, sketch: "", files: {} }));
    expect(shown.text(".kl-panel-verdict")).toContain("There is nothing to verify yet.");
  });

  it("show a GPU's counters launch by launch, or say why there are none", async () => {
    const { detail } = dump("edited");
    const launches = [{ kernel: "norm", facts: [{ name: "busy", text: "81 %", title: "Memory bounds it." }] }];
    const verdict = { ...(detail.verdict as VerdictView), launches, uncounted: "" };
    const kernel = new Kernel({ ...dump("edited"), detail: { ...detail, verdict } });
    shown = await show(kernel);
    await shown.open("verdict");
    expect(shown.text(".kl-panel-verdict")).toContain("norm");
    expect(shown.text(".kl-panel-verdict")).toContain("81 %");
    const without = { ...verdict, launches: [], uncounted: "ncu is not installed. It comes with the CUDA toolkit." };
    await shown.change(() => kernel.put("detail", { ...detail, verdict: without }));
    expect(shown.text(".kl-panel-verdict")).toContain("ncu is not installed.");
  });

  it("time the best over the sizes of a Dim, one after the other, and show those that failed", async () => {
    const traits = dump("edited");
    const kernel = new Kernel({ ...traits, roofline: { ...traits.roofline, dims: { M: 64, N: 4096 } } });
    kernel.answers.sizes = [64, 4096];
    kernel.answers.size = { size: 64, ms: 0.5, speedup: 2.5, low: 2.4, high: 2.6, text: "" };
    shown = await show(kernel);
    await shown.open("roofline");
    await shown.click("[data-action=over]");
    await shown.change(() => {});
    const asked = kernel.sent.map(({ body }) => body).filter((body) => "ask" in body && body.ask === "size");
    expect(asked).toEqual([
      { ask: "size", dim: "M", size: 64 },
      { ask: "size", dim: "M", size: 4096 },
    ]);
    expect(shown.text(".kl-over table")).toContain("2.40 to 2.60");
    const failed = { size: 64, ms: null, speedup: null, low: null, high: null, text: "M = 64 was not timed." };
    kernel.answers.size = failed;
    await shown.click("[data-action=over]");
    await shown.change(() => {});
    expect(shown.text(".kl-over table")).toContain("was not timed");
  });

  it("draw the roofline, with the same numbers in a table", async () => {
    await open("edited");
    await shown.open("roofline");
    const { points, history } = dump("edited").roofline;
    expect(shown.all(".kl-roofline tbody tr").length).toBe(
      new Set([...points, ...history].map((one) => one.turn)).size,
    );
    const first = shown.find(".kl-chart [role=button]");
    expect(first.getAttribute("aria-label")).toContain("of the bound");
    await shown.key(".kl-chart [role=button]", "Enter");
    expect(shown.kernel.traits.shown).toBe(points[0]?.turn);
  });

  it("show an exchange with a model, and what is being written", async () => {
    const traits = dump("designed");
    const head = {
      id: "x1",
      role: "coder",
      purpose: "code",
      model: "m",
      finish: "stop",
      error: "",
      tokens: "3k in",
      seconds: 2,
      recorded: "recorded on cpp",
    };
    const kernel = new Kernel({
      ...traits,
      detail: { ...traits.detail, exchanges: [head] },
      partial: { turn: "t9", role: "coder", text: "static void", length: 4000, state: "writes" },
    });
    kernel.answers.exchange = {
      head,
      messages: [{ role: "user", content: "lower this sketch" }],
      reply: "a kernel",
      reasoning: "because",
      steps: [],
      sections: [{ name: "examples", source: "knowledge/dsl/cpp", tokens: 900, note: "two of the family" }],
    };
    shown = await show(kernel);
    await shown.open("prompt");
    await shown.change(() => {});
    const words = shown.text(".kl-prompt");
    for (const part of [
      "is writing",
      "static void",
      "recorded on cpp",
      "lower this sketch",
      "a kernel",
      "because",
      "knowledge/dsl/cpp",
      "two of the family",
    ]) {
      expect(words).toContain(part);
    }
  });

  it("say so when there is nothing to show", async () => {
    const traits = dump("designed");
    const empty = { peak_flops: 0, bandwidth: 0, ridge: 0, source: "", points: [], baselines: [], history: [] };
    shown = await show(
      new Kernel({ ...traits, roofline: empty, detail: { ...traits.detail, verdict: null, stages: [] } }),
    );
    for (const panel of ["verdict", "roofline"]) {
      await shown.open(panel);
      expect(shown.text(`.kl-panel-${panel} .kl-empty`).length).toBeGreaterThan(20);
    }
    const tabs = shown.all("[role=tab]").map((tab) => tab.textContent);
    expect(tabs).not.toContain("Prompt");
  });

  it("draw no bar for a bound that cannot be believed, and let the best be taken along", async () => {
    const traits = dump("designed");
    const figure = { share: null, text: "no reliable bound here", title: "the kernel is faster than this bound" };
    const best = { ...(traits.head.best as NonNullable<typeof traits.head.best>), headroom: figure };
    const kernel = new Kernel({ ...traits, head: { ...traits.head, best, call: "rms_norm.best(x, w)" } });
    kernel.answers.export = { name: "rms_norm.py", text: "def kernel(x): ..." };
    shown = await show(kernel);
    expect(shown.text(".kl-figures")).toContain("no reliable bound here");
    expect(shown.all(".kl-meter")).toHaveLength(0);
    await shown.click("[data-action=take]");
    expect(shown.text(".kl-take")).toContain("rms_norm.best(x, w)");
    await shown.click("[data-action=export]");
    expect(kernel.sent.at(-1)?.body).toEqual({ ask: "export", what: "module" });
  });

  it("list notes, each with a button that takes it back", async () => {
    await open("designed", { notes: { coder: ["keep BLOCK small"] } });
    await shown.click("[data-action=note]");
    expect(shown.text(".kl-notes")).toContain("keep BLOCK small");
    await shown.click("[data-action=unnote]");
    expect(shown.kernel.acts()).toEqual([{ action: "unnote", role: "coder", text: "keep BLOCK small" }]);
  });

  it("time the best and those that are tied with it again in one press", async () => {
    const traits = dump("edited");
    const best = traits.head.best as NonNullable<Head["best"]>;
    const other = rowsOf(traits.turns, traits.changed).find(
      (row) => row.role === "coder" && row.number !== best.number,
    );
    const written = rowsOf(traits.turns, traits.changed).find((row) => row.number === best.number);
    if (!other || !written) throw new Error("the session has two candidates");
    const kernel = new Kernel({ ...traits, head: { ...traits.head, best: { ...best, tied: [] } } });
    kernel.answers.candidates = { total: 0, offset: 0, rows: [] };
    shown = await show(kernel);
    await shown.open("candidates");
    const button = () => shown.find("[data-action=time-again]");
    expect(button().getAttribute("aria-disabled")).toBe("true");
    await shown.change(() => kernel.head({ best: { ...best, tied: [other.number] } }));
    expect(button().textContent).toBe("Time the tied again, paired");
    await shown.change(() => kernel.head({ comparing: true, doing: "timing turn 2 again, next to torch.compile" }));
    expect(button().getAttribute("aria-disabled")).toBe("true");
    expect(button().dataset.tip).toBe("Kernels are being timed already: timing turn 2 again, next to torch.compile");
    await shown.change(() => kernel.head({ comparing: false, doing: "" }));
    await shown.click("[data-action=time-again]");
    const sizes = traits.roofline.dims;
    expect(kernel.acts()).toEqual([{ action: "time_again", turns: [written.id, other.id], sizes }]);
  });

  it("compare two candidates", async () => {
    const kernel = new Kernel(dump("edited"));
    const row = (number: number) => ({
      turn: `t${number}`,
      number,
      author: "rules",
      passed: true,
      on_path: true,
      trust: "T2",
      time: { text: "1 ms", title: "median" },
      speedup: null,
      value: null,
      note: "",
      best: number === 2,
    });
    kernel.answers.candidates = { total: 2, offset: 0, rows: [row(2), row(6)] };
    kernel.answers.compare = {
      a: "t3",
      b: "t7",
      verdict: "Turn 6 is 2 times as fast.",
      rows: [{ name: "time", a: "2 ms", b: "1 ms", title: "" }],
      diff: "-a\n+b",
    };
    shown = await show(kernel);
    await shown.open("candidates");
    await shown.change(() => {});
    for (const box of shown.all(".kl-check")) await shown.change(() => box.click());
    await shown.type(".kl-sizes input", "4096");
    await shown.change(() => shown.find(".kl-sizes input").dispatchEvent(new Event("change", { bubbles: true })));
    await shown.click("[data-action=time-again]");
    const own = dump("edited").roofline.dims;
    expect(kernel.acts()).toEqual([{ action: "time_again", turns: ["t2", "t6"], sizes: { ...own, M: 4096 } }]);
    await shown.click("[data-action=compare]");
    await shown.change(() => {});
    expect(kernel.sent.at(-1)?.body).toEqual({ ask: "compare", a: "t3", b: "t7" });
    expect(shown.text(".kl-comparison")).toContain("Turn 6 is 2 times as fast.");
    expect(shown.text(".kl-added")).toBe("+b");
  });
});

describe("a prediction", () => {
  const teaching = {
    teaching: true,
    prediction: { asked: true, turn: "t3", expected: null, reason: "", measured: null, history: [] },
  };
  it("is asked before the measurement", async () => {
    await open("designed", teaching);
    await shown.type(".kl-card-predict .kl-input", "fast");
    expect(shown.text(".kl-card-predict")).toContain("A number above 0");
    await shown.type(".kl-card-predict .kl-input", "2.5x");
    await shown.click("[data-action=predict]");
    expect(shown.kernel.acts()).toEqual([{ action: "predict", expected: 2.5, reason: "" }]);
  });
  it("can be left out", async () => {
    await open("designed", teaching);
    await shown.click("[data-action=no-prediction]");
    expect(shown.kernel.acts()).toEqual([{ action: "predict", expected: null, reason: "" }]);
  });
});

describe("a question that Undo asks again", () => {
  it("can be answered again", async () => {
    await open("designed", waiting());
    await shown.click("[data-action=approve]");
    await shown.change(() => shown.kernel.done());
    await shown.change(() => shown.kernel.head({ status: "running", card: null }));
    await shown.change(() => shown.kernel.head(waiting()));
    expect(shown.find("[data-action=approve]").getAttribute("aria-disabled")).toBeNull();
    await shown.click("[data-action=approve]");
    expect(shown.kernel.acts().filter((one) => (one as { action: string }).action === "approve")).toHaveLength(2);
  });
  it("can be answered again where the card went before the kernel's word", async () => {
    await open("designed", waiting());
    await shown.click("[data-action=approve]");
    await shown.change(() => shown.kernel.head({ status: "running", card: null }));
    await shown.change(() => shown.kernel.done());
    await shown.change(() => shown.kernel.head(waiting()));
    expect(shown.find("[data-action=approve]").getAttribute("aria-disabled")).toBeNull();
  });
});

describe("a proposal to finish", () => {
  it("says that rules read no words, whoever the work is sent to instead", async () => {
    const roles = { designer: "rules", coder: "rules", conductor: "rules" };
    await open("designed", { ...waiting({ to: "finish" }), roles });
    expect(shown.text(".kl-suggestion")).toContain("Designer and Coder are played by rules, which read no words");
    await shown.change(() => shown.kernel.head({ roles: { ...roles, coder: "model" } }));
    expect(shown.text(".kl-suggestion")).not.toContain("read no words");
  });
});

describe("a request that waits for its next try", () => {
  it("is no text that is being written", async () => {
    await open();
    const text = "It allows no more requests for now. The next try is in 3 s.";
    await shown.change(() =>
      shown.kernel.put("partial", { turn: "t1", role: "designer", text, length: text.length, state: "waits" }),
    );
    await shown.key(".kl", "1");
    expect(shown.text(".kl-streaming")).toBe(`Designer waits. ${text}`);
  });
});

describe("a turn whose process is gone", () => {
  it("is said to be cut off, with what was written until then", async () => {
    await open();
    const text = "[tool] gate_sketch\nright";
    await shown.change(() =>
      shown.kernel.put("partial", { turn: "t1", role: "designer", text, length: text.length, state: "cut off" }),
    );
    await shown.key(".kl", "1");
    expect(shown.text(".kl-streaming")).toContain("Designer was cut off here");
    expect(shown.text(".kl-streaming")).toContain(text);
    expect(shown.text(".kl-streaming")).not.toContain("writing");
  });
});

describe("the panels after Stop", () => {
  it("lead to the turn that was broken off, which the line has left", async () => {
    await open("designed", { status: "stopped", current: "t1" });
    const turns = shown.kernel.traits.changed as TurnRow[];
    const cut = { ...(turns[0] as TurnRow), id: "t99", number: 99, state: "stopped", on_path: false } as TurnRow;
    cut.author = "model";
    cut.role = "designer";
    await shown.change(() => shown.kernel.put("changed", [...turns, cut]));
    await shown.key(".kl", "5");
    expect(shown.text(".kl-panel-prompt")).toContain("Turn 99 was stopped");
    await shown.key(".kl", "2");
    expect(shown.text(".kl-panel-code")).not.toContain("Turn 99 was stopped");
    await shown.key(".kl", "1");
    await shown.click(".kl-panel-sketch [data-action=look-stopped]");
    expect(shown.kernel.traits.shown).toBe("t99");
    expect(shown.all(".kl-panel-prompt:not([hidden])")).toHaveLength(1);
    await shown.change(() => shown.kernel.put("detail", { turn: "t99", error: "Stopped by you." }));
    expect(shown.all(".kl-fault")).toHaveLength(0);
  });
});

describe("the keyboard", () => {
  it("steps, opens panels and shows its keys", async () => {
    await open("designed", {
      can: {
        step: true,
        run: true,
        pause: false,
        fork: true,
        undo: true,
        stop: true,
        approve: false,
        edit: true,
        tune: false,
      },
    });
    await shown.key(".kl", "s");
    expect(shown.kernel.acts()).toEqual([{ action: "step" }]);
    await shown.key(".kl", "u");
    expect(shown.kernel.acts().at(-1)).toEqual({ action: "undo" });
    await shown.key(".kl", "4");
    expect(shown.find("[role=tab][aria-selected=true]").textContent).toBe("Roofline");
    await shown.key(".kl", "?");
    expect(shown.find("[role=dialog]").textContent).toContain("step: one more turn");
    await shown.key("[role=dialog]", "Escape");
    expect(shown.all("[role=dialog]")).toEqual([]);
  });

  it("goes to the question and into the open panel", async () => {
    await open("designed", waiting());
    await shown.key(".kl", "q");
    expect(shown.find(".kl-card").contains(document.activeElement)).toBe(true);
    await shown.key(".kl", "3");
    await shown.key(".kl", "e");
    expect(shown.find(".kl-panel-verdict").contains(document.activeElement)).toBe(true);
  });

  it("counts on when the button that was pressed is gone with its card", async () => {
    await open("designed", waiting());
    await shown.key(".kl", "q");
    await shown.change(() => shown.kernel.head({ status: "running", card: null }));
    await shown.change(() => new Promise((done) => setTimeout(done)));
    expect(document.activeElement).toBe(shown.find(".kl"));
  });

  it("leaves what is typed alone", async () => {
    await open("designed", waiting());
    await shown.key(".kl-suggestion textarea", "s");
    await shown.key(".kl", "s", { ctrlKey: true });
    expect(shown.kernel.acts()).toEqual([]);
  });
});

it("says that the kernel is gone, and what to do", async () => {
  vi.useFakeTimers();
  await open("designed", waiting({ kind: "brief", role: "coder" }));
  const off = (action: string) => shown.find(`[data-action=${action}]`).getAttribute("aria-disabled");
  expect([off("note"), off("approve"), off("help")]).toEqual([null, null, null]);
  await shown.change(() => vi.advanceTimersByTime(15_000));
  expect(shown.text(".kl-status")).toContain("kernel gone");
  expect(shown.text(".kl-notices")).toContain("Run the cell again");
  // what needs the kernel looks so; the keys' help is in the page
  expect([off("note"), off("stop"), off("approve"), off("help")]).toEqual(["true", "true", "true", null]);
  expect(shown.find<HTMLSelectElement>(".kl-roles select").disabled).toBe(true);
});

it("says that a kernel is busy where a decision waits for it, not where a question does", async () => {
  vi.useFakeTimers();
  await open();
  await shown.open("accesses");
  await shown.change(() => vi.advanceTimersByTime(BUSY_MS + 50));
  expect(shown.text(".kl-status")).toContain("kernel busy");
  expect(shown.text(".kl-notices")).toBe("");
  await shown.click("[data-action=fork]");
  expect(shown.text(".kl-notices")).toContain("your action is applied");
});

it("shows the same in two places, each closed on its own", async () => {
  const kernel = new Kernel();
  shown = await show(kernel);
  const one = kernel.listeners();
  const second = await show(kernel);
  await shown.change(() => kernel.head({ status_text: "stopped" }));
  expect([shown.text("[role=status]"), second.text("[role=status]")]).toEqual(["stopped", "stopped"]);
  second.close();
  expect(kernel.listeners()).toBe(one);
  shown.close();
  expect(kernel.listeners()).toBe(0);
});

it("keeps an explanation while another panel is open", async () => {
  await open();
  shown.kernel.answers.explain = {
    title: "Why it is slow",
    points: [{ text: "It waits for memory.", because: "" }],
    advice: "",
    question: "why",
  };
  await shown.open("verdict");
  await shown.click("[data-action=explain-speed]");
  expect(shown.text(".kl-explain")).toContain("It waits for memory.");
  await shown.open("code");
  await shown.open("verdict");
  expect(shown.text(".kl-explain")).toContain("It waits for memory.");
});
