/** The one place where the monitor meets the kernel; also what is only of this page: who is selected, what is marked. */
import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { Link, type Model } from "../link";
import { fill, NOTHING } from "./defaults";
import { type Act, type Answers, type Ask, PROTOCOL, type Row, type Rows, type Traits } from "./protocol";

interface Said {
  traits: Traits;
  act: Act;
  ask: Ask;
  answers: Answers;
}

export type Panel = "candidates" | "compare" | "grid" | "analyst" | "ledger" | "steer";

/** 5,000 candidates are drawn twice a second; what would wait for less than a frame does not */
const ROWS_A_MS = 10;
const FRAME_MS = 16;

export class MonitorView extends Link<Said> {
  /** all candidates by number; the map is one object that changes, `changes` counts how often it was told */
  readonly rows = new Map<number, Row>();
  readonly changes: Signal<number> = signal(0);
  readonly panel: Signal<Panel> = signal<Panel>("candidates");
  /** who was chosen; null follows the best */
  readonly chosen: Signal<number | null> = signal<number | null>(null);
  readonly at: ReadonlySignal<number | null>;
  /** the two that are compared */
  readonly marked: Signal<readonly number[]> = signal<readonly number[]>([]);
  #version = 0;
  #told = Number.NEGATIVE_INFINITY;
  #due: ReturnType<typeof setTimeout> | undefined;
  #asking = false;
  #closed = false;

  constructor(model: Model) {
    super(model, Object.keys(NOTHING) as (keyof Traits)[], fill);
    this.at = computed(() => this.chosen.value ?? this.state.head.value.best);
    const kernels = this.state.head.value.protocol;
    if (kernels !== PROTOCOL) {
      this.say(
        `This view speaks protocol ${PROTOCOL} and the kernel ${kernels}: reload the page, or restart the kernel after an upgrade.`,
        "error",
      );
    }
    this.stops.push(this.state.version.subscribe(() => this.#catchUp()));
  }

  choose(number: number): void {
    if (this.rows.has(number)) this.chosen.value = number;
  }

  mark(number: number): void {
    const marked = this.marked.value;
    this.marked.value = marked.includes(number)
      ? marked.filter((one) => one !== number)
      : [...marked, number].slice(-2);
  }

  override dispose(): void {
    this.#closed = true;
    clearTimeout(this.#due);
    super.dispose();
  }

  protected override told(message: { kind?: unknown }): boolean {
    if (message.kind !== "rows") return false;
    const found = message as unknown as Rows;
    if (found.since === this.#version) this.#take(found);
    return true;
  }

  #take(found: Rows): void {
    for (const row of found.rows) this.rows.set(row.number, row);
    this.#version = found.version;
    if (found.rows.length) this.#tell();
  }

  /** Chart and table are drawn again as a whole: the more candidates there are, the more of them come at once. */
  #tell(): void {
    if (this.#due !== undefined) return;
    const wait = this.rows.size / ROWS_A_MS - (performance.now() - this.#told);
    const tell = () => {
      this.#due = undefined;
      this.#told = performance.now();
      this.changes.value += 1;
    };
    if (wait < FRAME_MS) tell();
    else this.#due = setTimeout(tell, wait);
  }

  /** Asks for what is missing: after a reload everything, after a lost message what changed since. */
  async #catchUp(): Promise<void> {
    if (this.#asking) return;
    this.#asking = true;
    try {
      while (!this.#closed && this.#version < this.state.version.value) {
        const since = this.#version;
        const found = await this.request({ ask: "rows", since });
        // a message may have brought them meanwhile
        if (since === this.#version) this.#take(found);
        if (since === this.#version) return;
      }
    } catch {
      // the next change of the version asks again; whether the kernel lives is shown already
    } finally {
      this.#asking = false;
    }
  }
}
