// The live view of one design session: turns, sketch, code, verdict, and the Conductor's card.
//
// Everything drawn comes from the `state` trait, so a page reload or a second view shows the same. Clicks become
// messages with a number; the kernel puts the last number it took in the `ack` trait.

const ACK_MS = 300; // a click that the kernel has not taken by then is shown as waiting
const BEAT_MS = 12000; // no heartbeat for this long: the kernel is gone

/** Makes an element: h("button", { class: "x", onclick: f }, "text", child). */
function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const MARKS = { passed: "✓", failed: "✗", running: "…", waiting: "?", done: "●", skipped: "–", "not reached": "·" };
const mark = (state) => h("span", { class: `kl-mark kl-${state.replace(" ", "-")}`, "aria-label": state }, MARKS[state] ?? "●");

/** Redraws a part only when what it shows has changed: a redraw would take the focus, or a click half done. */
function part(draw) {
  let last;
  return (...what) => {
    const key = JSON.stringify(what);
    if (key === last) return;
    last = key;
    draw(...what);
  };
}

/** A text area that keeps what a person types while newer text arrives from the kernel. */
class Editor {
  constructor(label, apply, onApply) {
    this.area = h("textarea", { class: "kl-editor", spellcheck: "false", "aria-label": label, "data-lm-suppress-shortcuts": "true" });
    this.note = h("span", { class: "kl-note", role: "status" });
    this.applyButton = h("button", { class: "kl-primary", disabled: true, onclick: () => onApply(this.area.value) }, apply);
    this.revertButton = h("button", { disabled: true, onclick: () => this.revert() }, "Revert");
    this.kernel = "";
    this.area.addEventListener("input", () => this.refresh());
    this.area.addEventListener("keydown", (event) => {
      event.stopPropagation(); // the notebook has single-letter commands
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !this.applyButton.disabled) onApply(this.area.value);
    });
    this.bar = h("div", { class: "kl-bar" }, this.note, this.revertButton, this.applyButton);
  }
  get dirty() {
    return this.area.value !== this.kernel;
  }
  update(text) {
    if (text === this.kernel) return;
    const keep = this.dirty && this.area.value !== text;
    this.kernel = text;
    if (!keep) this.area.value = text;
    this.area.rows = Math.min(26, Math.max(6, text.split("\n").length + 1));
    this.refresh();
  }
  revert() {
    this.area.value = this.kernel;
    this.refresh();
  }
  refresh() {
    this.applyButton.disabled = this.revertButton.disabled = !this.dirty;
    this.note.textContent = this.dirty ? "edited by you, not applied yet (Ctrl-Enter applies)" : "";
  }
}

function drawTurns(turns, shown, pick) {
  const rows = turns.map((turn) =>
    h("li", {},
      h("button", {
        class: `kl-turn${turn.id === shown ? " kl-shown" : ""}`,
        style: `padding-left:${8 + 14 * (turn.depth ?? 0)}px`,
        title: turn.title, "aria-pressed": String(turn.id === shown), onclick: () => pick(turn.id),
      },
      mark(turn.state),
      h("span", { class: "kl-who" }, turn.role),
      h("span", { class: "kl-dim" }, turn.author),
      h("span", { class: "kl-sec" }, turn.seconds),
      h("span", { class: "kl-what" }, turn.note))),
  );
  return h("ol", { class: "kl-turns", "aria-label": "turns" }, rows);
}

function drawSpeedups(rows) {
  const scale = Math.max(1.2, ...rows.map((row) => row.high)) * 1.05;
  const x = (value) => `${((100 * value) / scale).toFixed(2)}%`;
  return h("div", { class: "kl-speedups", role: "img", "aria-label": rows.map((row) => row.text).join("; ") },
    rows.map((row) =>
      h("div", { class: "kl-speed", title: row.title },
        h("span", { class: "kl-base" }, `against ${row.baseline}`),
        h("span", { class: "kl-track" },
          h("span", { class: `kl-fill${row.speedup < 1 ? " kl-slow" : ""}`, style: `width:${x(row.speedup)}` }),
          h("span", { class: "kl-range", style: `left:${x(row.low)};width:calc(${x(row.high)} - ${x(row.low)})` }),
          h("span", { class: "kl-one", style: `left:${x(1)}` })),
        h("span", { class: "kl-value" }, row.text))));
}

/** Right places are dim, wrong ones stand out. */
const drawMap = (rows) =>
  h("pre", { class: "kl-map" }, rows.join("\n").split(/([^.\n]+)/).map((run, index) => (index % 2 ? h("span", { class: "kl-bad" }, run) : run)));

const drawStages = (stages) =>
  h("ol", { class: "kl-stages", "aria-label": "stages" }, stages.map((stage) =>
    h("li", { class: `kl-stage kl-${stage.state.replace(" ", "-")}`, title: stage.note }, mark(stage.state), ` ${stage.name} `, h("span", { class: "kl-dim" }, stage.seconds))));

function drawVerdict({ verdict, stages, reproduction, log }) {
  if (!verdict && stages.length) return h("div", {}, h("p", { class: "kl-dim" }, "The Verifier is at work."), drawStages(stages));
  if (!verdict) return h("p", { class: "kl-dim" }, "No verdict yet on what is shown here.");
  const facts = Object.entries(verdict.facts).map(([key, value]) => [h("dt", {}, key), h("dd", {}, value)]);
  return h("div", {},
    h("p", { class: verdict.passed ? "kl-good" : "kl-bad" }, h("b", {}, verdict.passed ? "passed" : `failed at ${verdict.stage}`), ` ${verdict.reason}`),
    drawStages(verdict.stages),
    verdict.speedups.length ? drawSpeedups(verdict.speedups) : null,
    facts.length ? h("dl", { class: "kl-facts" }, facts) : null,
    verdict.error_map.length ? h("figure", {}, h("figcaption", { class: "kl-dim" }, "where the errors are ( . right, x wrong, n not finite )"), drawMap(verdict.error_map)) : null,
    verdict.compiler.length ? h("pre", {}, verdict.compiler.join("\n")) : null,
    reproduction ? h("details", {}, h("summary", {}, "a cell that reproduces the failing case"), h("pre", {}, reproduction)) : null,
    log ? h("details", {}, h("summary", {}, "the whole log"), h("pre", {}, log)) : null,
  );
}

function render({ model, el }) {
  let tab = "Sketch";
  let sent = 0;
  let beatAt = Date.now();
  const root = h("div", { class: "kl", "data-kernellab": model.get("name") });

  const send = (action, payload = {}) => {
    sent += 1;
    const id = `${Date.now()}-${sent}`;
    model.send({ id, action, ...payload });
    setTimeout(() => {
      if (model.get("ack") !== id && sending === id) busy.textContent = "kernel busy: this click is taken when the running cell ends";
    }, ACK_MS);
    sending = id;
  };
  let sending = "";

  const head = h("header", { class: "kl-head" });
  const side = h("nav", { class: "kl-side" });
  const tabs = h("div", { class: "kl-tabs", role: "tablist" });
  const pane = h("div", { class: "kl-pane", role: "tabpanel" });
  const card = h("section", { class: "kl-card", "aria-label": "Conductor's proposal" });
  const foot = h("footer", { class: "kl-foot" });
  const busy = h("div", { class: "kl-busy", role: "status" });
  root.append(head, h("div", { class: "kl-main" }, side, h("div", { class: "kl-work" }, tabs, pane)), card, foot, busy);
  el.append(root);

  const shown = () => model.get("shown") || model.get("state").current;
  const sketch = new Editor("sketch", "Apply", (text) => send("sketch", { text, turn: shown() }));
  const code = new Editor("code", "Verify", (text) => send("source", { file: file, text, turn: shown() }));
  let file = "";
  const suggestion = h("textarea", { class: "kl-editor kl-suggestion", rows: 3, "aria-label": "suggestion", "data-lm-suppress-shortcuts": "true", onkeydown: (event) => event.stopPropagation() });
  let suggestionOf = "";

  const open = (name) => {
    tab = name;
    drawPane(model.get("state"));
  };
  const openFile = (name) => {
    file = name;
    code.kernel = code.area.value = "";
    drawPane(model.get("state"));
  };

  const layTabs = part((current) => {
    tabs.replaceChildren(...["Sketch", "Code", "Verdict"].map((name) =>
      h("button", { class: name === current ? "kl-tab kl-shown" : "kl-tab", role: "tab", "aria-selected": String(name === current), onclick: () => open(name) }, name)));
  });
  const layPane = part((current, what) => {
    if (current === "Sketch") {
      const notes = what.map((note) => h("li", { class: note.startsWith("error") ? "kl-bad" : "kl-dim" }, note));
      pane.replaceChildren(sketch.area, sketch.bar, h("ul", { class: "kl-notes" }, notes));
    } else if (current === "Code") {
      const files = what.names.map((name) => h("button", { class: name === what.file ? "kl-file kl-shown" : "kl-file", disabled: what.dirty && name !== what.file, onclick: () => openFile(name) }, name));
      pane.replaceChildren(h("div", { class: "kl-files" }, files), code.area, code.bar);
    } else pane.replaceChildren(drawVerdict(what));
  });

  const drawPane = (state) => {
    const { sketch: text, files, reproduction, log } = model.get("texts");
    const names = Object.keys(files);
    if (!names.includes(file)) file = state.main_file || names[0] || "";
    sketch.update(text);
    code.update(files[file] ?? "");
    layTabs(tab);
    const { verdict, stages } = state;
    layPane(tab, { Sketch: state.sketch_notes, Code: { names, file, dirty: code.dirty }, Verdict: { verdict, stages, reproduction, log } }[tab]);
  };
  code.area.addEventListener("input", () => drawPane(model.get("state"))); // its files' buttons

  const drawCard = part((what) => {
    card.hidden = !what;
    if (!what) return;
    if (suggestionOf !== what.id) {
      suggestionOf = what.id;
      suggestion.value = what.suggestion;
    }
    const words = () => (what.editable ? { suggestion: suggestion.value } : {});
    const to = (kind) => () => send("approve", { to: kind, ...words() });
    const elsewhere = { coder: "Send to Coder", designer: "Send to Designer", me: "I do it myself", finish: "Finish" };
    const others = what.editable ? Object.keys(elsewhere).filter((kind) => kind !== what.to) : [];
    const yes = { brief: "Keep as it is", error: "Try again" }[what.kind] ?? "Approve";
    card.replaceChildren(
      h("p", {}, h("b", {}, what.title), ` ${what.text}`),
      h("ul", { class: "kl-notes" }, what.evidence.map((line) => h("li", {}, line))),
      what.editable
        ? h("label", { class: "kl-dim" }, "Suggestion for the next role (edit it before you approve)", suggestion)
        : h("p", { class: "kl-dim" }, what.hint),
      h("div", { class: "kl-bar", hidden: !what.pending },
        h("button", { class: "kl-primary", "data-action": "approve", onclick: to(null) }, yes),
        others.map((kind) => h("button", { "data-action": `to-${kind}`, onclick: to(kind) }, elsewhere[kind])),
        h("button", { "data-action": "card-stop", onclick: () => send("stop") }, "Stop")));
  });

  const choice = (label, value, options, onchange) =>
    h("label", { class: "kl-dim" }, `${label} `, h("select", { onchange: (event) => onchange(event.target.value) }, options.map((option) => h("option", { value: option, selected: option === value }, option))));

  const look = (id) => {
    model.set("shown", id === model.get("state").current ? "" : id);
    model.save_changes();
    draw();
  };
  const drawHead = part((name, subtitle, headline, title, status, text) => {
    head.replaceChildren(
      h("b", {}, name), h("span", { class: "kl-dim" }, subtitle), h("span", { class: "kl-grow" }),
      h("span", { class: "kl-headline", title }, headline), h("span", { class: `kl-pill kl-${status}`, role: "status" }, text));
  });
  const drawSide = part((turns, current) => side.replaceChildren(drawTurns(turns, current, look)));
  const drawFoot = part((can, approve, roles) => {
    const button = (action, label, title) =>
      h("button", { disabled: !can[action], "data-action": action, title, onclick: () => send(action, action === "fork" ? { turn: shown() } : {}) }, label);
    foot.replaceChildren(
      button("step", "Step", "one more turn"), button("run", "Run", "turns until the approval policy stops them"),
      button("pause", "Pause", "stop after the turn that runs"), button("fork", "Fork here", "continue from the turn that is shown"),
      button("stop", "Stop", "end the session"), h("span", { class: "kl-grow" }),
      choice("approve", approve, ["none", "routing", "all"], (value) => send("approval", { value })),
      ...Object.entries(roles).map(([role, value]) => choice(role, value, [...new Set([value, "rules", "human"])], (kind) => send("role", { role, value: kind }))));
  });

  const draw = () => {
    const state = model.get("state");
    drawHead(state.name, state.subtitle, state.headline, state.headline_title, state.status, state.status_text);
    drawSide(state.turns, shown());
    drawPane(state);
    drawCard(state.card);
    drawFoot(state.can, state.approve, state.roles);
    busy.textContent = model.get("error") || state.error;
    busy.classList.toggle("kl-bad", busy.textContent !== "");
  };

  const onAck = () => {
    if (model.get("ack") === sending && busy.textContent.startsWith("kernel busy")) busy.textContent = "";
  };
  const onBeat = () => {
    beatAt = Date.now();
    root.classList.remove("kl-dead");
  };
  const watch = setInterval(() => {
    const alive = Date.now() - beatAt < BEAT_MS;
    root.classList.toggle("kl-dead", !alive);
    if (!alive) busy.textContent = "The kernel does not answer: it is gone or was restarted. Run the cell again to continue the session.";
  }, 2000);

  draw();
  const listeners = { "change:state": draw, "change:texts": draw, "change:shown": draw, "change:error": draw, "change:ack": onAck, "change:beat": onBeat };
  for (const [event, listener] of Object.entries(listeners)) model.on(event, listener);
  return () => {
    clearInterval(watch);
    for (const [event, listener] of Object.entries(listeners)) model.off(event, listener);
  };
}

export default { render };
