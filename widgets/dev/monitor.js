import widget from "/kernellab/notebook/static/monitor.js";
import { FixtureModel } from "./model.js";
import { answers, figures, head, row, rows } from "./run.js";
import { themed } from "./theme.js";

const wanted = new URLSearchParams(location.search);

const all = rows(Number(wanted.get("rows") ?? 120));
const model = new FixtureModel({ head: head(all), figures: figures(all), version: all.length, beat: 0 });
Object.assign(model.traits.head, JSON.parse(wanted.get("head") ?? "{}"));
/** Answers as the kernel's: rows in parts of a thousand. */
model.send = ({ id, body }) => {
  model.sent.push(body);
  if (!body.ask) return model.reply({ kind: "done", id });
  const value =
    body.ask === "rows"
      ? {
          since: body.since,
          version: Math.min(all.length, body.since + 1000),
          rows: all.slice(body.since, body.since + 1000),
        }
      : answers[body.ask]?.(body);
  model.reply({ kind: "answer", id, ...(value ? { value } : { error: "The page has no answer to that." }) });
};
/** More candidates, as the publisher sends them. */
window.grow = (count = 1) => {
  const since = model.get("version");
  const fresh = Array.from({ length: count }, (_, at) => row(all.length + at));
  all.push(...fresh);
  model.emit("msg:custom", { kind: "rows", since, version: since + count, rows: fresh });
  model.set("version", since + count);
  model.set("head", { ...head(all), candidates: all.length });
};

const el = document.getElementById("at");
const width = wanted.get("width");
if (width) el.style.width = `${width}px`;
const started = performance.now();
window.close_view = widget.render({ model, el });
window.drawn_ms = performance.now() - started;
window.model = model;
setInterval(() => model.set("beat", (model.get("beat") ?? 0) + 1), 1000);

await themed;
const panel = wanted.get("panel");
if (panel) document.querySelector(`[role=tab][id$="-${panel}"]`).click();
const until = setInterval(() => {
  if (!document.querySelector("[data-number]") && (!panel || panel === "candidates")) return;
  clearInterval(until);
  if (panel === "compare")
    for (const at of [0, 1]) {
      document.querySelector('[role=tab][id$="-candidates"]').click();
      setTimeout(() => document.querySelectorAll("[data-number] input")[at].click(), 50);
      setTimeout(() => document.querySelector('[role=tab][id$="-compare"]').click(), 300);
    }
  document.body.dataset.ready = "yes";
}, 20);
