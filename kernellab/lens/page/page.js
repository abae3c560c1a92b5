"use strict";
/* One page of the lens: source and level side by side, lines linked both ways. `DATA` is put in by page.py. */
const $ = (id) => document.getElementById(id);
const make = (tag, cls, text) => {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (text !== undefined) node.textContent = text;
  return node;
};

// in JupyterLab the page follows its theme, elsewhere the system's
const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => {
  let is = dark.matches;
  try {
    const said = parent !== window && parent.document.body.dataset.jpThemeLight;
    if (said) is = said === "false";
  } catch { /* a page of another origin */ }
  if (DATA.theme) is = DATA.theme === "dark";
  document.documentElement.toggleAttribute("data-dark", is);
};
theme();
dark.addEventListener("change", theme);
try {
  if (parent !== window) new MutationObserver(theme).observe(parent.document.body, { attributes: true });
} catch { /* likewise */ }

const TOKENS = /(\/\/.*|^#loc.*|(?<!\S)# .*|\/\*.*?\*\/|^\s*;.*)|("(?:[^"\\]|\\.)*")|((?:%|\$)[\w.$]+|\b(?:[xyz]mm\d+|U?R\d+|U?P\d|r[a-ds]?[a-dxsip]{1,2}|r\d+)\b)|(\b\d[\w.]*\b)|(^\s*(?:@!?U?P\d )?[A-Za-z_][\w.]*|\b(?:def|return|for|in|if|else|const|float|int|auto|static|void|import|from)\b)/g;
const COLOURS = ["c", "s", "r", "d", "k"];
function coloured(text) {
  const line = make("span", "t");
  let at = 0;
  for (const found of text.matchAll(TOKENS)) {
    const kind = COLOURS.find((_, i) => found[i + 1] !== undefined);
    line.append(text.slice(at, found.index), make("span", kind, found[0]));
    at = found.index + found[0].length;
  }
  line.append(text.slice(at));
  return line;
}

const state = { lens: 0, level: "", difference: false };
const shown = () => DATA.lenses[state.lens];
const levelOf = (lens) => lens.levels.find((one) => one.name === state.level) ?? lens.levels.at(-1);

function pane(id, text, links, other) {
  const box = $(id);
  box.replaceChildren();
  const rows = text.split("\n").map((line, i) => {
    const row = make("div", links.has(i + 1) ? "row has" : "row");
    row.append(make("span", "n", String(i + 1)), coloured(line));
    row.dataset.line = i + 1;
    return row;
  });
  box.append(...rows);
  const choose = (line, scroll) => point(id, line, scroll);
  box.onmouseover = (event) => {
    const row = event.target.closest(".row");
    if (row && !box.dataset.kept) choose(Number(row.dataset.line), false);
  };
  box.onclick = (event) => {
    const row = event.target.closest(".row");
    if (row) choose(Number(row.dataset.line), true);
  };
  box.onkeydown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const known = [...links.keys()].sort((a, b) => a - b);
    const now = Number(box.querySelector(".chosen")?.dataset.line ?? (step > 0 ? 0 : Infinity));
    const next = step > 0 ? known.find((n) => n > now) : known.findLast((n) => n < now);
    if (next !== undefined) choose(next, true);
  };
  box.links = links;
  box.other = other;
}

/** places of a line that are named; all of them are marked */
const SAID = 8;
const spans = (lines) => {
  const said = [];
  for (const line of lines) {
    const last = said.at(-1);
    if (last && line === last[1] + 1) last[1] = line;
    else said.push([line, line]);
  }
  const words = said.map(([a, b]) => (a === b ? a : `${a}–${b}`));
  return words.length > SAID ? `${words.slice(0, SAID).join(", ")} and ${words.length - SAID} more places` : words.join(", ");
};

function point(id, line, scroll) {
  const box = $(id), there = $(box.other);
  for (const one of [box, there]) for (const row of one.querySelectorAll(".linked, .chosen")) row.classList.remove("linked", "chosen");
  const row = box.children[line - 1];
  row?.classList.add("chosen");
  if (scroll) row?.scrollIntoView({ block: "nearest" });
  const linked = box.links.get(line) ?? [];
  for (const number of linked) there.children[number - 1]?.classList.add("linked");
  if (linked.length && scroll) there.children[linked[0] - 1]?.scrollIntoView({ block: "center" });
  const name = levelOf(shown()).name, file = shown().file;
  const [here, target] = id === "source" ? [file, name] : [name, file];
  $("said").textContent = linked.length
    ? `Line ${line} of ${here}: ${linked.length === 1 ? "line" : "lines"} ${spans(linked)} of ${target}.`
    : `Line ${line} of ${here} has no line of ${target}.`;
}

function table(rows, heads) {
  const found = make("table");
  if (heads) {
    const head = make("tr");
    for (const one of heads) { const cell = make("th", "", one); cell.scope = "col"; head.append(cell); }
    found.append(head);
  }
  for (const [name, ...cells] of rows) {
    const row = make("tr"), first = make("th", "", name);
    first.scope = "row";
    row.append(first, ...cells.map((text, i) => make("td", i < cells.length - 1 || heads ? "value" : "", text)));
    found.append(row);
  }
  return found;
}

function draw() {
  const lens = shown(), level = levelOf(lens);
  const title = (fact) => (fact.kernel ? `${fact.kernel}: ${fact.name}` : fact.name);
  for (const button of $("levels").children) {
    const on = button.dataset.level === (state.difference ? state.level || level.name : level.name);
    button.setAttribute("aria-selected", on);
    button.tabIndex = on ? 0 : -1;
  }
  for (const button of $("lenses").children) {
    button.setAttribute("aria-pressed", state.difference ? button.dataset.lens === "difference" : button.dataset.lens === String(state.lens));
  }
  $("main").toggleAttribute("data-one", state.difference);
  $("left").hidden = state.difference;
  const change = state.difference && DATA.differences.find((one) => one.level === (state.level || level.name));
  if (change) {
    const words = !change.text ? "The same in both." : change.same
      ? "Only the compiler's numbers of registers, values and labels differ." : `${change.added} line${change.added === 1 ? "" : "s"} more, ${change.removed} less.`;
    $("facts").replaceChildren(change.facts.length
      ? table(change.facts.map((f) => [f.name, f.a || "–", f.b || "–"]), ["fact", ...DATA.names])
      : make("p", "dim", "No fact differs."));
    $("title").textContent = `${change.level}: ${words}`;
    pane("level", change.text, new Map(), "source");
    for (const row of $("level").children) {
      const mark = row.textContent.replace(/^\d+/, "")[0];
      if (mark === "+" || mark === "-") row.classList.add(mark === "+" ? "plus" : "minus");
    }
    $("said").textContent = words;
    return;
  }
  $("facts").replaceChildren(table(lens.facts.map((fact) => [title(fact), fact.value, fact.sentence])));
  $("notes").replaceChildren(...lens.notes.map((text) => make("li", "", text)));
  $("target").textContent = lens.target;
  $("file").textContent = lens.file;
  $("title").textContent = `${level.name}: ${level.title}`;
  const down = new Map(), up = new Map();
  const add = (map, key, value) => (map.has(key) ? map.get(key).push(value) : map.set(key, [value]));
  for (const [source, line] of level.links) { add(down, source, line); add(up, line, source); }
  const kept = $("source").querySelector(".chosen")?.dataset.line;
  pane("source", lens.text, down, "level");
  pane("level", level.text, up, "source");
  const first = Number(kept) || [...down].sort((a, b) => b[1].length - a[1].length)[0]?.[0];
  if (first) point("source", first, true);
  else $("said").textContent = "No line of this level is linked: the compiler kept none.";
}

const names = new Set(DATA.lenses.flatMap((lens) => lens.levels.map((one) => one.name)));
const tabs = [...(DATA.differences.length ? ["source"] : []), ...names].map((name) => {
  const button = make("button", "", name);
  button.type = "button";
  button.role = "tab";
  button.dataset.level = name;
  button.setAttribute("aria-controls", "level");
  button.onclick = () => {
    state.level = name;
    if (name === "source") state.difference = true;
    draw();
  };
  return button;
});
$("levels").append(...tabs);
$("levels").onkeydown = (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = tabs[(tabs.findIndex((one) => one.getAttribute("aria-selected") === "true") + step + tabs.length) % tabs.length];
  next.click();
  next.focus();
};
if (DATA.lenses.length > 1) {
  const choose = [...DATA.names.map((name, i) => [String(i), name]), ["difference", "difference"]];
  $("lenses").append(...choose.map(([key, name]) => {
    const button = make("button", "", name);
    button.type = "button";
    button.dataset.lens = key;
    button.onclick = () => {
      state.difference = key === "difference";
      if (!state.difference) { state.lens = Number(key); if (state.level === "source") state.level = ""; }
      draw();
    };
    return button;
  }));
}
draw();
