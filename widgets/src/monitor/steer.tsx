/** What a person does to a run that continues: a sketch of theirs, islands that rest, knobs. */
import { useState } from "preact/hooks";
import { severityOf } from "../editor/diagnostics";
import { SketchArea, SketchField } from "../editor/SketchField";
import { plural } from "../format";
import { Button, Choice } from "../ui";
import { colourOf } from "./picture";
import type { Knob } from "./protocol";
import type { MonitorView } from "./view";

export function SteerPanel({ view }: { view: MonitorView }) {
  const { knobs } = view.state.figures.value;
  return (
    <div class="kl-mon-two">
      <Inject view={view} />
      <div class="kl-mon-stack">
        <Islands view={view} />
        <div>
          <h3>Knobs</h3>
          <div class="kl-mon-knobs">
            {knobs.map((knob) => (
              <Turn key={knob.name} view={view} knob={knob} />
            ))}
          </div>
        </div>
      </div>
    </div>
  );
}

/** What is written for each run, by view: it stays while another panel is open. */
const fields = new WeakMap<MonitorView, { sketch: SketchField; send: () => void }>();

const LABEL = "sketch to inject";

function fieldOf(view: MonitorView) {
  const known = fields.get(view);
  if (known) return known;
  const made = {
    send: () => {},
    sketch: new SketchField(
      (ask, options) => view.request(ask, options),
      LABEL,
      "Write a sketch, or begin with a candidate's.",
      () => made.send(),
    ),
  };
  fields.set(view, made);
  return made;
}

function Inject({ view }: { view: MonitorView }) {
  const field = fieldOf(view);
  const { sketch } = field;
  const [why, setWhy] = useState("");
  const [island, setIsland] = useState(0);
  const { islands, can } = view.state.head.value;
  const at = view.at.value;
  const errors = sketch.errors.value;
  sketch.editable.value = can.steer;
  const fetch = async () => {
    if (at === null) return;
    try {
      sketch.text.value = (await view.request({ ask: "candidate", number: at })).sketch;
    } catch (error) {
      view.say((error as Error).message, "error");
    }
  };
  field.send = async () => {
    const first = sketch.errors.peek() ? sketch.findings.peek().find((one) => severityOf(one) === "error") : undefined;
    if (first) {
      sketch.focusLine(first.line);
      return;
    }
    const text = sketch.text.peek();
    if (!can.steer || !text.trim()) return;
    const outcome = await view.send({ action: "inject", text, island, why });
    if (outcome.error) return;
    sketch.text.value = "";
    setWhy("");
  };
  return (
    <div>
      <h3>Inject a sketch</h3>
      {!can.steer && <p class="kl-dim">The search has ended. Begin another one to inject a sketch.</p>}
      <div class="kl-row kl-mon-inject">
        <Button action="begin-with" disabled={at === null || !can.steer} onClick={fetch}>
          Begin with candidate {at ?? ""}
        </Button>
        <Choice
          label="on island"
          value={String(island)}
          options={islands.map(({ number }) => String(number))}
          onChange={(to) => setIsland(Number(to))}
        />
        <input
          class="kl-input kl-grow"
          aria-label="why"
          placeholder="why, in a few words"
          value={why}
          onInput={(event) => setWhy(event.currentTarget.value)}
        />
        <Button
          primary
          action="inject"
          disabled={!can.steer || !sketch.text.value.trim() || errors > 0}
          busy={view.sending.value.has("inject")}
          title={
            can.steer
              ? errors
                ? `It has ${plural(errors, "error")}: correct them first`
                : undefined
              : "The search has ended"
          }
          onClick={() => field.send()}
        >
          Inject
        </Button>
      </div>
      <SketchArea field={sketch} label={LABEL} />
    </div>
  );
}

function Islands({ view }: { view: MonitorView }) {
  const { islands, can } = view.state.head.value;
  return (
    <div>
      <h3>Islands</h3>
      <ul class="kl-mon-islands">
        {islands.map(({ number, size, best, frozen }) => (
          <li key={number} class="kl-row">
            <span class="kl-mon-dot" style={{ background: colourOf(number) }} aria-hidden="true" />
            island {number}
            <span class="kl-dim">
              {plural(size, "candidate")}
              {best !== null && ", best "}
              {best !== null && (
                <button type="button" class="kl-link" onClick={() => view.choose(best)}>
                  {best}
                </button>
              )}
            </span>
            <Button
              action={`${frozen ? "thaw" : "freeze"}-${number}`}
              disabled={!can.steer}
              pressed={frozen}
              title={frozen ? "Proposals for it again" : "No proposals for it, and no migration to or from it"}
              onClick={() => view.send({ action: frozen ? "thaw" : "freeze", island: number })}
            >
              {frozen ? "Thaw" : "Freeze"}
            </Button>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Turn({ view, knob }: { view: MonitorView; knob: Knob }) {
  const [draft, setDraft] = useState<string | null>(null);
  const steer = view.state.head.value.can.steer;
  const name = knob.name.replaceAll("_", " ");
  const set = (value: string) => {
    setDraft(null);
    if (value !== knob.value) view.send({ action: "knob", name: knob.name, value });
  };
  if (knob.options.length) {
    return <Choice label={name} title={knob.title} value={knob.value} options={knob.options} onChange={set} />;
  }
  return (
    <label class="kl-choice" data-tip={knob.title}>
      <span class="kl-dim">{name}</span>
      <input
        class="kl-input"
        data-knob={knob.name}
        value={draft ?? knob.value}
        readOnly={!steer}
        size={knob.name === "budget" ? 22 : 6}
        onInput={(event) => setDraft(event.currentTarget.value)}
        onBlur={(event) => set(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") set(event.currentTarget.value);
          if (event.key === "Escape") setDraft(null);
        }}
      />
    </label>
  );
}
