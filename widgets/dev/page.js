import widget from "/kernellab/notebook/static/workbench.js";
import * as extra from "./extra.js";
import { candidates, turns } from "./many.js";
import { FixtureModel } from "./model.js";
import { frame, themed } from "./theme.js";

const wanted = new URLSearchParams(location.search);
const read = async (name) => (await fetch(`../fixtures/${name}.json`)).json();

const traits = await read(wanted.get("fixture") ?? "designed");
const many = Number(wanted.get("turns") ?? 0);
if (many) {
  traits.turns = turns(many);
  traits.changed = [];
  traits.head.current = traits.turns.at(-1).id;
}
if (wanted.has("extra")) {
  traits.detail.exchanges = extra.exchanges;
  traits.head.teaching = true;
  traits.head.prediction = extra.prediction;
}

// a page may lay its own values over the dump: {"head": {"status": "failed"}}
for (const [trait, fields] of Object.entries(JSON.parse(wanted.get("with") ?? "{}")))
  Object.assign(traits[trait], fields);

const answers = { ...(await read("answers")), exchange: await read("exchange") };
const model = new FixtureModel(traits, wanted.has("extra") ? { ...answers, ...extra.answers } : answers);
if (many) model.candidates = candidates(many);
const el = document.getElementById("at");
const width = wanted.get("width");
if (width) el.style.width = `${width}px`;
const started = performance.now();
window.close_view = widget.render({ model, el });
window.drawn_ms = performance.now() - started;
window.model = model;

const panel = wanted.get("panel");
if (panel) document.querySelector(`[role=tab][id$="-${panel}"]`).click();
for (const key of wanted.get("keys") ?? "")
  document.querySelector(".kl-tree").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
setInterval(() => model.set("beat", (model.get("beat") ?? 0) + 1), 1000);
await themed;
await frame();
document.body.dataset.ready = "yes";
