/**
 * The one place where the front end meets the kernel.
 *
 * A `View` holds the kernel's traits as signals, sends a person's decisions (`send`) and questions (`request`), and
 * knows whether the kernel answers. Panels read `view.state`, never the anywidget model. What is only of this page
 * (which panel is open, what is marked for comparison) is a signal here too, and is never sent.
 */
import { batch, computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { fill, NOTHING } from "./defaults";
import { once } from "./once";
import {
  type Act,
  type Answers,
  type Ask,
  type FromKernel,
  PROTOCOL,
  rowsOf,
  type ToKernel,
  type Traits,
  type TurnRow,
} from "./protocol";

/** What of an anywidget model is used here. */
export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(content: unknown): void;
  on(event: string, listener: (...args: never[]) => void): void;
  off(event: string, listener: (...args: never[]) => void): void;
}

/** A click that the kernel has not taken by then waits behind a running cell. */
export const BUSY_MS = 300;
/** No heartbeat for this long: the kernel is gone. */
export const GONE_MS = 12_000;
/** A question that is not answered by then is given up; decisions wait as long as the kernel lives. */
export const ANSWER_MS = 20_000;
const CHECK_MS = 2_000;

export const GONE =
  "The kernel does not answer: it is gone or was restarted. Run the cell again to continue the session from its journal.";
export const LATE = "The kernel is busy and did not answer. Try again when the running cell has ended.";

export type Link = "ready" | "busy" | "gone";
export type Panel = "sketch" | "code" | "verdict" | "roofline" | "prompt" | "memory" | "candidates";

/** Where a panel is to put the caret: set by a link in another panel, taken by the panel that shows the text. */
export interface Place {
  panel: Panel;
  file?: string;
  line?: number;
}

export interface Outcome {
  /** a sentence with its remedy; absent when the decision was carried out */
  error?: string;
  /** a sentence to show beside what was done */
  note?: string;
}

export interface Notice {
  text: string;
  tone: "error" | "info";
}

/** A question that was not answered; `message` is a sentence for the person. */
export class Unanswered extends Error {}

export type State = { readonly [K in keyof Traits]: ReadonlySignal<Traits[K]> };

type Signals = { readonly [K in keyof Traits]: Signal<Traits[K]> };

interface Reply {
  error?: string;
  note?: string;
  value?: unknown;
}

interface Waiting {
  since: number;
  settle: (reply: Reply | null, error: string) => void;
}

let views = 0;

export class View {
  /** unlike any other view's: the stem of the ids of this view's elements */
  readonly key: string;
  /** the kernel's traits */
  readonly state: State;
  readonly link: ReadonlySignal<Link>;
  /** the last thing that a person must hear; `dismiss` takes it away */
  readonly notice: ReadonlySignal<Notice | null>;
  /** id of the turn that is looked at; null before the first turn */
  readonly at: ReadonlySignal<string | null>;
  /** all rows of the timeline, in order of number */
  readonly rows: ReadonlySignal<TurnRow[]>;
  /** the row of the turn that is looked at */
  readonly row: ReadonlySignal<TurnRow | null>;
  /** true while the view follows the newest turn */
  readonly following: ReadonlySignal<boolean>;
  /** the kinds of decisions under way; a button whose decision is under way shows it */
  readonly sending: ReadonlySignal<ReadonlySet<string>>;
  readonly panel: Signal<Panel> = signal<Panel>("sketch");
  readonly place: Signal<Place | null> = signal<Place | null>(null);

  #model: Model;
  #traits: Signals;
  #link = signal<Link>("ready");
  #notice = signal<Notice | null>(null);
  #sending = signal<ReadonlySet<string>>(new Set());
  #waiting = new Map<string, Waiting>();
  #same = new Map<string, Promise<Outcome>>();
  #sent = 0;
  #beatAt = Date.now();
  #checkedAt = Date.now();
  #lookTimer: ReturnType<typeof setTimeout> | undefined;
  #stop: (() => void)[] = [];

  constructor(model: Model) {
    this.#model = model;
    views += 1;
    this.key = `${Date.now().toString(36)}-${views}`;
    this.#traits = Object.fromEntries(
      Object.keys(NOTHING).map((name) => [name, signal(fill(name as keyof Traits, model.get(name)))]),
    ) as Signals;
    this.state = this.#traits;
    this.link = this.#link;
    this.notice = this.#notice;
    this.sending = this.#sending;
    this.at = computed(() => this.state.shown.value || this.state.head.value.current);
    this.rows = computed(() => rowsOf(this.state.turns.value, this.state.changed.value));
    this.row = computed(() => this.rows.value.find((turn) => turn.id === this.at.value) ?? null);
    this.following = computed(() => this.state.shown.value === "");
    this.#listen();
    if (this.state.head.value.protocol !== PROTOCOL) {
      this.#notice.value = {
        text: `This view speaks protocol ${PROTOCOL} and the kernel ${this.state.head.value.protocol}: reload the page, or restart the kernel after an upgrade.`,
        tone: "error",
      };
    }
  }

  /**
   * Sends a person's decision. Never rejects: a refusal becomes the notice, and the outcome's `error`.
   *
   * The same decision again while the first is under way is that first one: double clicks do nothing more.
   */
  send(act: Act): Promise<Outcome> {
    const key = JSON.stringify(act);
    const running = this.#same.get(key);
    if (running) return running;
    const outcome = this.#post(act, Number.POSITIVE_INFINITY).then(
      (reply): Outcome => (reply.note ? { note: reply.note } : {}),
      (error: Error): Outcome => ({ error: error.message }),
    );
    const done = outcome.then((result) => {
      this.#same.delete(key);
      this.#sending.value = new Set([...this.#same.keys()].map(actionOf));
      if (result.error) this.say(result.error, "error");
      else if (result.note) this.say(result.note);
      return result;
    });
    this.#same.set(key, done);
    this.#sending.value = new Set([...this.#same.keys()].map(actionOf));
    if (this.#notice.value?.tone === "error" && this.#link.value !== "gone") this.#notice.value = null;
    return done;
  }

  /**
   * Asks the kernel. Rejects with `Unanswered` (a sentence) when it cannot answer, is gone or late, and with the
   * signal's reason when the caller no longer wants to know.
   */
  request<A extends Ask>(ask: A, options: { signal?: AbortSignal; timeout?: number } = {}): Promise<Answers[A["ask"]]> {
    const { signal: abort, timeout = ANSWER_MS } = options;
    return this.#post(ask, timeout, abort).then((reply) => reply.value as Answers[A["ask"]]);
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

  say(text: string, tone: Notice["tone"] = "info"): void {
    this.#notice.value = { text, tone };
  }

  dismiss(): void {
    this.#notice.value = null;
  }

  dispose(): void {
    clearTimeout(this.#lookTimer);
    for (const stop of this.#stop) stop();
    this.#stop = [];
    for (const waiting of [...this.#waiting.values()]) waiting.settle(null, "The view was closed.");
  }

  #look(shown: string): void {
    if (shown === this.state.shown.value) return;
    this.#model.set("shown", shown);
    this.#model.save_changes();
    this.#traits.shown.value = shown;
  }

  #listen(): void {
    for (const name of Object.keys(NOTHING) as (keyof Traits)[]) {
      const changed = () => {
        (this.#traits[name] as Signal<unknown>).value = fill(name, this.#model.get(name));
        this.#alive();
      };
      this.#model.on(`change:${name}`, changed);
      this.#stop.push(() => this.#model.off(`change:${name}`, changed));
    }
    const heard = (message: unknown) => this.#hear(message);
    this.#model.on("msg:custom", heard);
    this.#stop.push(() => this.#model.off("msg:custom", heard));
    const timer = setInterval(() => this.#check(), CHECK_MS);
    this.#stop.push(() => clearInterval(timer));
  }

  #hear(message: unknown): void {
    this.#alive();
    const reply = message as Partial<FromKernel> | null;
    if (!reply || typeof reply !== "object" || (reply.kind !== "done" && reply.kind !== "answer")) {
      once(`kernellab: a message of the kernel was not understood and is ignored (kind ${String(reply?.kind)}).`);
      return;
    }
    this.#waiting.get(reply.id ?? "")?.settle(reply, "");
  }

  #alive(): void {
    this.#beatAt = Date.now();
    if (this.#link.value !== "gone") return;
    this.#link.value = "ready";
    if (this.#notice.value?.text === GONE) this.#notice.value = null;
  }

  #check(): void {
    const now = Date.now();
    // a page that was asleep has heard nothing because nothing could reach it
    if (now - this.#checkedAt > 3 * CHECK_MS) this.#beatAt = now;
    this.#checkedAt = now;
    if (now - this.#beatAt < GONE_MS || this.#link.value === "gone") return;
    this.#link.value = "gone";
    for (const waiting of [...this.#waiting.values()]) waiting.settle(null, GONE);
    this.#notice.value = { text: GONE, tone: "error" };
  }

  #post(body: Act | Ask, timeout: number, abort?: AbortSignal): Promise<Reply> {
    if (this.#link.value === "gone") return Promise.reject(new Unanswered(GONE));
    if (abort?.aborted) return Promise.reject(abort.reason);
    this.#sent += 1;
    const id = `${this.key}-${this.#sent}`;
    return new Promise((resolve, reject) => {
      const busy = setTimeout(() => {
        if (this.#link.value === "ready") this.#link.value = "busy";
      }, BUSY_MS);
      const late = Number.isFinite(timeout) ? setTimeout(() => settle(null, LATE), timeout) : undefined;
      const settle = (reply: Reply | null, error: string) => {
        clearTimeout(busy);
        clearTimeout(late);
        abort?.removeEventListener("abort", aborted);
        this.#waiting.delete(id);
        if (this.#link.value === "busy" && !this.#anyLate()) this.#link.value = "ready";
        if (!reply) reject(new Unanswered(error));
        else if (reply.error) reject(new Unanswered(reply.error));
        else resolve(reply);
      };
      const aborted = () => {
        reject(abort?.reason);
        settle(null, "");
      };
      abort?.addEventListener("abort", aborted);
      this.#waiting.set(id, { since: Date.now(), settle });
      this.#model.send({ id, body } satisfies ToKernel);
    });
  }

  #anyLate(): boolean {
    const now = Date.now();
    return [...this.#waiting.values()].some((waiting) => now - waiting.since >= BUSY_MS);
  }
}

const actionOf = (key: string): string => (JSON.parse(key) as Act).action;
