/**
 * The one place where the workbench meets the kernel. Panels read `view.state`, never the anywidget model. What is only
 * of this page (which panel is open, what is marked for comparison) is a signal here too, and is never sent.
 */
import { batch, computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { fill, NOTHING } from "./defaults";
import { Link, type Model } from "./link";
import { type Act, type Answers, type Ask, PROTOCOL, type Traits, type TurnRow } from "./protocol";
import { rowsOf } from "./rows";

export {
  ANSWER_MS,
  AWAY,
  BUSY_MS,
  GONE,
  GONE_MS,
  LATE,
  type Model,
  type Notice,
  type Outcome,
  Unanswered,
} from "./link";

export type Panel = "sketch" | "accesses" | "code" | "verdict" | "roofline" | "prompt" | "memory" | "candidates";

/** Where a panel is to put the caret: set by a link in another panel, taken by the panel that shows the text. */
export interface Place {
  panel: Panel;
  file?: string;
  line?: number;
}

/** A message of the front end's. */
export interface ToKernel {
  id: string;
  body: Act | Ask;
}

interface Said {
  traits: Traits;
  act: Act;
  ask: Ask;
  answers: Answers;
}

export class View extends Link<Said> {
  /** id of the turn that is looked at; null before the first turn */
  readonly at: ReadonlySignal<string | null>;
  /** all rows of the timeline, in order of number */
  readonly rows: ReadonlySignal<TurnRow[]>;
  /** the row of the turn that is looked at */
  readonly row: ReadonlySignal<TurnRow | null>;
  /** true while the view follows the newest turn */
  readonly following: ReadonlySignal<boolean>;
  readonly panel: Signal<Panel> = signal<Panel>("sketch");
  /** texts at the session's head that are edited and not applied: "sketch", "source" */
  readonly unapplied: Signal<readonly string[]> = signal<readonly string[]>([]);
  readonly place: Signal<Place | null> = signal<Place | null>(null);
  #lookTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(model: Model) {
    super(model, Object.keys(NOTHING) as (keyof Traits)[], fill);
    this.at = computed(() => this.state.shown.value || this.state.head.value.current);
    this.rows = computed(() => rowsOf(this.state.turns.value, this.state.changed.value));
    this.row = computed(() => this.rows.value.find((turn) => turn.id === this.at.value) ?? null);
    this.following = computed(() => this.state.shown.value === "");
    if (this.state.head.value.protocol !== PROTOCOL) {
      const kernels = this.state.head.value.protocol;
      this.say(
        `This view speaks protocol ${PROTOCOL} and the kernel ${kernels}: reload the page, or restart the kernel after an upgrade.`,
        "error",
      );
    }
  }

  /** Looks at a turn; the newest one is followed on. `soon` waits for the end of a run of arrow keys. */
  look(turn: string, soon = false): void {
    clearTimeout(this.#lookTimer);
    const shown = turn === this.state.head.value.current ? "" : turn;
    if (soon) {
      this.#lookTimer = setTimeout(() => this.#look(shown), 120);
    } else {
      this.#look(shown);
    }
  }

  follow(): void {
    this.#look("");
  }

  /** Opens a panel, at a place in it when that is known. */
  open(panel: Panel, place: Omit<Place, "panel"> = {}): void {
    batch(() => {
      this.panel.value = panel;
      this.place.value = { panel, ...place };
    });
  }

  override dispose(): void {
    clearTimeout(this.#lookTimer);
    super.dispose();
  }

  #look(shown: string): void {
    if (shown === this.state.shown.value) return;
    this.model.set("shown", shown);
    this.model.save_changes();
    this.traits.shown.value = shown;
  }
}
