/** The monitor of a search: its head and buttons, its chart, the chosen candidate, panels. */
import type { ComponentChild } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { save } from "../download";
import { duration, guess, plural } from "../format";
import { keepFocus, nameOf, passSave, typing } from "../keys";
import { Notices } from "../notices";
import { Tooltip } from "../tooltip";
import { Button, Tied, Tip, useElapsed } from "../ui";
import { Chart } from "./chart";
import { Chosen } from "./chosen";
import { AnalystPanel, ComparePanel, GridPanel, LedgerPanel } from "./panels";
import { CandidatesPanel } from "./rows";
import { SteerPanel } from "./steer";
import type { MonitorView, Panel } from "./view";

const PANELS: { id: Panel; name: string; shown: (props: { view: MonitorView }) => ComponentChild }[] = [
  { id: "candidates", name: "Candidates", shown: CandidatesPanel },
  { id: "compare", name: "Compare", shown: ComparePanel },
  { id: "grid", name: "Kinds", shown: GridPanel },
  { id: "analyst", name: "Analyst", shown: AnalystPanel },
  { id: "ledger", name: "Ledger", shown: LedgerPanel },
  { id: "steer", name: "Steer", shown: SteerPanel },
];

/** What a key does when nothing is being typed. */
const KEYS: Record<string, (view: MonitorView, root: HTMLElement) => void> = {
  p: (_, root) => click(root, "pause"),
  r: (_, root) => click(root, "resume"),
  "Shift+X": (_, root) => click(root, "stop"),
  b: (view) => {
    view.chosen.value = null;
  },
  t: (view, root) => {
    view.panel.value = "candidates";
    queueMicrotask(() => root.querySelector<HTMLElement>(".kl-mon-table")?.focus());
  },
  o: (_, root) => click(root, "open"),
  m: (_, root) => click(root, "mark"),
};

const click = (root: HTMLElement, action: string) =>
  root.querySelector<HTMLElement>(`[data-action="${action}"]`)?.click();

export function Monitor({ view }: { view: MonitorView }) {
  const root = useRef<HTMLDivElement>(null);
  const head = view.state.head.value;
  useEffect(() => (root.current ? keepFocus(root.current) : undefined), []);
  const keys = (event: KeyboardEvent) => {
    if (root.current && passSave(event, root.current)) event.preventDefault();
    else if (!event.ctrlKey && !event.metaKey && !event.altKey && !typing(event.target) && root.current) {
      const key = nameOf(event);
      const panel = PANELS[Number(key) - 1];
      if (panel) view.panel.value = panel.id;
      else KEYS[key]?.(view, root.current);
      if (panel || KEYS[key]) event.preventDefault();
    }
    event.stopPropagation();
  };
  return (
    <div
      ref={root}
      class={`kl kl-mon${view.link.value === "gone" ? " kl-gone" : ""}`}
      role="group"
      tabIndex={-1}
      aria-label={`search for faster kernels of ${head.name}`}
      data-kernellab-run={head.run}
      data-name={head.name}
      data-status={head.status}
      // the notebook has its single-letter commands: two d's delete a cell
      data-lm-suppress-shortcuts="true"
      onKeyDown={keys}
    >
      <Header view={view} />
      <Notices view={view} message={head.message} />
      <div class="kl-mon-main">
        <Chart view={view} />
        <Chosen view={view} />
      </div>
      <Tabs view={view} />
      {PANELS.map(({ id, shown: Shown }) => (
        <div
          key={id}
          role="tabpanel"
          id={`kl-mon-panel-${view.key}-${id}`}
          aria-labelledby={`kl-mon-tab-${view.key}-${id}`}
          class={`kl-panel kl-mon-panel kl-mon-panel-${id}`}
          hidden={id !== view.panel.value}
          // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and must do so by keyboard too
          tabIndex={0}
          // the form keeps what was typed while another panel is open
        >
          {(id === view.panel.value || id === "steer") && <Shown view={view} />}
        </div>
      ))}
      <Tooltip root={root} />
    </div>
  );
}

/** How long it has worked, about how long it still takes, and the tokens it took. */
function Pace({ view }: { view: MonitorView }) {
  const { began, spent, left, status, tokens } = view.state.head.value;
  const running = status === "running" && view.link.value === "ready";
  const elapsed = useElapsed(began, running);
  const parts = [
    running ? `${duration(elapsed)} so far` : duration(spent),
    ...(running && left !== null && left >= 1 ? [`about ${guess(left)} left`] : []),
    ...(tokens ? [tokens] : []),
  ];
  return <span class="kl-dim kl-mon-pace">{parts.join(", ")}</span>;
}

function Header({ view }: { view: MonitorView }) {
  const head = view.state.head.value;
  const { can } = head;
  const link = view.link.value;
  const words = view.linkWords || head.status_text || head.status;
  const sending = view.sending.value;
  const act = (
    action: "pause" | "resume" | "stop" | "work" | "remember",
    name: string,
    title: string,
    sign?: string,
  ) => (
    <Button
      action={action}
      sign={sign}
      disabled={!can[action]}
      busy={sending.has(action)}
      title={title}
      onClick={() => view.send({ action })}
    >
      {name}
    </Button>
  );
  const report = async () => {
    try {
      save(await view.request({ ask: "report" }));
    } catch (error) {
      view.say((error as Error).message, "error");
    }
  };
  return (
    <div class="kl-head">
      <div class="kl-title">
        <strong class="kl-name">{head.name}</strong>
        <span>{head.dsl}</span>
        <span class="kl-dim">
          {plural(head.islands.length, "island")}, policy {head.policy}
        </span>
        <code class="kl-dim">{head.run}</code>
      </div>
      <div class={`kl-status kl-status-${link === "ready" ? head.status : link}`} data-tip={head.reason || undefined}>
        <span class="kl-lamp" aria-hidden="true" />
        <span role="status">{words}</span>
        <Pace view={view} />
      </div>
      <div class="kl-figures">
        {head.best === null ? (
          <span class="kl-dim">
            {`no candidate of this search is verified yet${head.candidates ? ": those that passed are ranked first" : ""}`}
          </span>
        ) : (
          <>
            <Button
              quiet
              action="look-best"
              title="Look at the best candidate (b)"
              onClick={() => {
                view.chosen.value = null;
              }}
            >
              best #{head.best}
            </Button>
            <Tied numbers={head.tied} />
            <Tip class="kl-figure" text={head.best_text} title="the best candidate's figures" />
            {head.first_text && <span class="kl-dim">{head.first_text}</span>}
          </>
        )}
        <span class="kl-mon-acts">
          {act("pause", "Pause", "Finish what runs, begin nothing new (p)", "pause")}
          {act("resume", "Resume", "Go on after a pause (r)", "run")}
          {act("stop", "Stop", "End the run; what was found stays (Shift+X)", "stop")}
          {can.remember && act("remember", "Remember", "Keep what was verified for later designs")}
          {can.work && act("work", "Work here", "Work on it in this kernel, where no other process does")}
          <Button action="report" title="A read-only page for colleagues" onClick={report}>
            Report
          </Button>
        </span>
      </div>
      {head.reason && head.status !== "running" && <p class="kl-mon-reason">{head.reason}</p>}
    </div>
  );
}

function Tabs({ view }: { view: MonitorView }) {
  const open = view.panel.value;
  const { suggestion } = view.state.head.value;
  const go = (list: HTMLElement, step: number) => {
    const at = PANELS.findIndex((panel) => panel.id === open);
    const next = PANELS[(at + step + PANELS.length) % PANELS.length];
    if (next) view.panel.value = next.id;
    queueMicrotask(() => list.querySelector<HTMLElement>("[aria-selected=true]")?.focus());
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
          go(event.currentTarget, event.key === "ArrowRight" ? 1 : -1);
        }}
      >
        {PANELS.map(({ id, name }) => (
          <button
            key={id}
            type="button"
            role="tab"
            id={`kl-mon-tab-${view.key}-${id}`}
            aria-selected={id === open}
            aria-controls={`kl-mon-panel-${view.key}-${id}`}
            tabIndex={id === open ? 0 : -1}
            class="kl-tab"
            onClick={() => {
              view.panel.value = id;
            }}
          >
            {name}
            {id === "compare" && view.marked.value.length > 0 && (
              <span class="kl-tab-mark kl-dim">{view.marked.value.length}</span>
            )}
            {id === "analyst" && suggestion && (
              <span class="kl-tab-mark kl-unsure" data-tip={suggestion}>
                new direction
              </span>
            )}
          </button>
        ))}
      </div>
    </div>
  );
}
