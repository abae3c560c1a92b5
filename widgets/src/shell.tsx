/** The workbench: header, timeline, panels, the question to the person, the session's buttons. */
import type { ComponentChild } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ConductorCard } from "./card";
import { CodePanel } from "./code";
import { Controls } from "./controls";
import { SketchPanel } from "./editor";
import { panelOf } from "./follow";
import { Header } from "./header";
import { Help } from "./help";
import { keepFocus, PANELS, passSave, press, typing } from "./keys";
import { Notices } from "./notices";
import { CandidatesPanel } from "./panels/candidates";
import { MemoryPanel } from "./panels/memory";
import { PromptPanel } from "./panels/prompt";
import { RooflinePanel } from "./panels/roofline";
import { TouchesPanel } from "./panels/touches";
import { VerdictPanel } from "./panels/verdict";
import { PredictionCard } from "./prediction";
import { Timeline } from "./timeline";
import { Tooltip } from "./tooltip";
import { TurnNote } from "./turn-note";
import { Button } from "./ui";
import type { Panel, View } from "./view";

export function Workbench({ view }: { view: View }) {
  const root = useRef<HTMLDivElement>(null);
  const before = useRef<HTMLElement | null>(null);
  const [help, setHelp] = useState(false);
  const head = view.state.head.value;
  const { card } = head;
  const asked = card?.pending ? card.id : null;
  useEffect(() => {
    if (asked === null || !view.following.peek()) return;
    // an edit under way is not taken out of sight
    if (root.current?.querySelector('[data-standing="edited"]:not([hidden] *)')) return;
    const panel = panelOf(view.state.head.peek().card, view.state.detail.peek());
    if (panel) view.open(panel);
  }, [asked]);
  useEffect(() => (root.current ? keepFocus(root.current) : undefined), []);
  // a session that has just begun, of which a part is in sight, is shown whole: its buttons are at its lower edge
  useEffect(() => {
    if (!["running", "waiting"].includes(head.status) || view.rows.peek().length > 1) return;
    const soon = requestAnimationFrame(() => {
      const { top, bottom } = root.current?.getBoundingClientRect() ?? { top: 0, bottom: 0 };
      if (top < innerHeight && bottom > innerHeight) root.current?.scrollIntoView({ block: "nearest" });
    });
    return () => cancelAnimationFrame(soon);
  }, []);
  const openHelp = () => {
    before.current = document.activeElement as HTMLElement | null;
    setHelp(true);
  };
  const closeHelp = () => {
    setHelp(false);
    before.current?.focus();
  };
  return (
    <div
      ref={root}
      class={`kl kl-bench${view.link.value === "gone" ? " kl-gone" : ""}`}
      role="group"
      tabIndex={-1}
      aria-label={`workbench of ${head.name}`}
      data-kernellab={head.name}
      data-status={head.status}
      // the notebook has its single-letter commands: two d's delete a cell
      data-lm-suppress-shortcuts="true"
      onKeyDown={(event) => {
        if (!root.current) return;
        if (passSave(event, root.current)) void 0;
        else if (event.key === "?" && !typing(event.target)) openHelp();
        else if (!press(event, view, root.current)) return event.stopPropagation();
        event.preventDefault();
        event.stopPropagation();
      }}
    >
      <Header view={view} />
      <Notices view={view} message={head.message} />
      <div class="kl-cards">
        <PredictionCard view={view} />
        <ConductorCard view={view} />
      </div>
      <div class="kl-main">
        <Timeline view={view} />
        <div class="kl-work">
          <Tabs view={view} help={openHelp} />
          <TurnNote view={view} />
          <Panels view={view} />
        </div>
      </div>
      <Controls view={view} />
      <Tooltip root={root} />
      {help && <Help close={closeHelp} />}
    </div>
  );
}

function Tabs({ view, help }: { view: View; help: () => void }) {
  const open = view.panel.value;
  const marks = useMarks(view);
  const panels = useful(view);
  const go = (step: number) => {
    const at = panels.findIndex((panel) => panel.id === open);
    const next = panels[(at + step + panels.length) % panels.length];
    if (next) view.open(next.id);
  };
  return (
    <div class="kl-tabs">
      <div
        class="kl-tablist"
        role="tablist"
        aria-label="panels"
        onKeyDown={(event) => {
          if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
          event.preventDefault();
          const list = event.currentTarget;
          go(event.key === "ArrowRight" ? 1 : -1);
          queueMicrotask(() => list.querySelector<HTMLElement>("[aria-selected=true]")?.focus());
        }}
      >
        {panels.map((panel) => (
          <button
            key={panel.id}
            type="button"
            role="tab"
            id={tabId(view, panel.id)}
            aria-selected={panel.id === open}
            aria-controls={panelId(view, panel.id)}
            tabIndex={panel.id === open ? 0 : -1}
            class="kl-tab"
            onClick={() => view.open(panel.id)}
          >
            {panel.name}
            {marks[panel.id] && (
              <span class={`kl-tab-mark ${marks[panel.id]?.kind ?? ""}`}>{marks[panel.id]?.text}</span>
            )}
          </button>
        ))}
      </div>
      <Button local quiet sign="help" action="help" label="keys" title="Keys (?)" onClick={help} />
    </div>
  );
}

/** The panels that can have something to say: a session by rules alone has no prompts and nothing remembered. */
function useful(view: View): typeof PANELS {
  const { exchanges, memory } = view.state.detail.value;
  const spoken = exchanges.length > 0 || Object.values(view.state.head.value.roles).some((spec) => spec !== "rules");
  const shown: Partial<Record<Panel, boolean>> = {
    prompt: spoken,
    memory: memory.length > 0 || view.state.head.value.best !== null,
  };
  return PANELS.filter(({ id }) => (shown[id] ?? true) || id === view.panel.value);
}

const tabId = (view: View, panel: Panel) => `kl-tab-${view.key}-${panel}`;
const panelId = (view: View, panel: Panel) => `kl-panel-${view.key}-${panel}`;

/** What a closed panel has to say, on its tab. */
function useMarks(view: View): { [P in Panel]?: { text: string; kind: string } } {
  const { diagnostics, verdict, exchanges, memory } = view.state.detail.value;
  const errors = diagnostics.filter((one) => one.severity === "error").length;
  return {
    ...(errors ? { sketch: { text: String(errors), kind: "kl-bad" } } : {}),
    ...(verdict
      ? { verdict: { text: verdict.passed ? "\u2713" : "\u2717", kind: verdict.passed ? "kl-good" : "kl-bad" } }
      : {}),
    ...(exchanges.length ? { prompt: { text: String(exchanges.length), kind: "kl-dim" } } : {}),
    ...(memory.length ? { memory: { text: String(memory.length), kind: "kl-dim" } } : {}),
  };
}

/** Editors stay mounted when another panel is open: what was typed, the selection and the undo steps live in them. */
const KEPT: Partial<Record<Panel, (props: { view: View }) => ComponentChild>> = {
  sketch: SketchPanel,
  code: CodePanel,
};
const OTHERS: Partial<Record<Panel, (props: { view: View }) => ComponentChild>> = {
  verdict: VerdictPanel,
  roofline: RooflinePanel,
  prompt: PromptPanel,
  memory: MemoryPanel,
  candidates: CandidatesPanel,
  accesses: TouchesPanel,
};

function Panels({ view }: { view: View }) {
  const open = view.panel.value;
  // an editor is made when it is first opened: a page of ten sessions must not make twenty editors
  const opened = useRef(new Set<Panel>());
  useEffect(() => () => opened.current.clear(), []);
  opened.current.add(open);
  return (
    <>
      {PANELS.map(({ id }) => {
        const Shown = KEPT[id] ?? (id === open ? OTHERS[id] : undefined);
        const made = id === open || (id in KEPT && opened.current.has(id));
        return (
          <div
            key={id}
            role="tabpanel"
            id={panelId(view, id)}
            aria-labelledby={tabId(view, id)}
            class={`kl-panel kl-panel-${id}`}
            hidden={id !== open}
            // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and must do so by keyboard too
            tabIndex={0}
          >
            {made && Shown && <Shown view={view} />}
          </div>
        );
      })}
    </>
  );
}
