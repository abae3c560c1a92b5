/**
 * What every view of a kernel's widget does: it holds the kernel's traits as signals, sends a person's decisions
 * (`send`) and questions (`request`), and knows whether the kernel answers.
 */
import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { lineOf } from "./line";
import { once } from "./once";
import type { Ping } from "./protocol";

/** What of an anywidget model is used here. */
export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(content: unknown): void;
  on(event: string, listener: (...args: never[]) => void): void;
  off(event: string, listener: (...args: never[]) => void): void;
}

/** A message that a kernel at work has not answered by then waits behind a running cell; a button shows its own wait. */
export const BUSY_MS = 1_000;
/** No heartbeat for this long: the kernel is asked, and is gone if it does not answer, whatever the front end says. */
export const GONE_MS = 12_000;
/** A question that is not answered by then is given up; decisions wait as long as the kernel lives. */
export const ANSWER_MS = 20_000;
/** Without a reply for this long, the line is tried; without an answer to that for as long again, it is lost. */
export const TRY_MS = 1_200;
const CHECK_MS = 2_000;

export const GONE =
  "The kernel does not answer: it is gone or was restarted. Run the cell again to continue from the journal.";
export const AWAY =
  "This page does not reach the Jupyter server. The kernel works on there, and is shown again when the connection is back; what you have just sent may still arrive.";
export const LATE = "The kernel is busy and did not answer. Try again when the running cell has ended.";
export const LOST = "This page lost its line to the kernel, which runs: reload the page.";

export type Connection = "ready" | "busy" | "gone";

export interface Outcome {
  /** a sentence with its remedy; absent when the decision was carried out */
  error?: string;
  /** a sentence to show next to what was done */
  note?: string;
}

export interface Notice {
  text: string;
  tone: "error" | "info";
}

/** A question that was not answered; `message` is a sentence for the person. */
export class Unanswered extends Error {
  /** did the kernel say nothing? It may answer later; a refusal is its answer. */
  readonly unheard: boolean;

  constructor(message: string, unheard = false) {
    super(message);
    this.unheard = unheard;
  }
}

export type State<T> = { readonly [K in keyof T]: ReadonlySignal<T[K]> };

interface Reply {
  error?: string;
  note?: string;
  value?: unknown;
}

interface Waiting {
  since: number;
  message: { id: string; body: object };
  settle: (reply: Reply | null, error: string) => void;
}

let views = 0;

/** What a widget's two halves say to each other: its traits, its decisions, its questions and their answers. */
export interface Speech {
  traits: object;
  act: { action: string };
  ask: { ask: string };
  answers: object;
}

/** Makes a trait's value whole: what an older kernel leaves out is empty, what a newer one adds is ignored. */
export type Fill<T> = <K extends keyof T>(name: K, value: unknown) => T[K];

export class Link<S extends Speech> {
  /** unlike any other view's: the stem of the ids of this view's elements */
  readonly key: string;
  /** the kernel's traits */
  readonly state: State<S["traits"]>;
  readonly link: ReadonlySignal<Connection>;
  /** is it the connection that is gone, not the kernel? */
  readonly away: ReadonlySignal<boolean>;
  /** the last thing that a person must hear; `dismiss` takes it away */
  readonly notice: ReadonlySignal<Notice | null>;
  /** the kinds of decisions under way; a button whose decision is under way shows it */
  readonly sending: ReadonlySignal<ReadonlySet<string>>;

  protected readonly model: Model;
  protected readonly traits: { readonly [K in keyof S["traits"]]: Signal<S["traits"][K]> };
  protected readonly stops: (() => void)[] = [];
  #link = signal<Connection>("ready");
  #away = signal(false);
  #notice = signal<Notice | null>(null);
  #sending = signal<ReadonlySet<string>>(new Set());
  #waiting = new Map<string, Waiting>();
  #same = new Map<string, Promise<Outcome>>();
  #sent = 0;
  #trying = false;
  /** has the front end said that the kernel ended? Then it is not asked. */
  #ended = false;
  #beatAt = Date.now();
  #checkedAt = Date.now();

  /** `names` are the traits; a trait that changes is a sign of life. */
  constructor(model: Model, names: readonly (keyof S["traits"] & string)[], fill: Fill<S["traits"]>) {
    this.model = model;
    views += 1;
    this.key = `${Date.now().toString(36)}-${views}`;
    this.traits = Object.fromEntries(
      names.map((name) => [name, signal(fill(name, model.get(name)))]),
    ) as typeof this.traits;
    this.state = this.traits;
    this.link = this.#link;
    this.away = this.#away;
    this.notice = this.#notice;
    this.sending = this.#sending;
    this.#listen(names, fill);
  }

  /**
   * Sends a person's decision. Never rejects: a refusal becomes the notice, and the outcome's `error`.
   *
   * The same decision again while the first is under way is that first one: double clicks do nothing more.
   */
  send(act: S["act"]): Promise<Outcome> {
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
    // what was said of an earlier decision may not hold after this one
    if (this.#link.value !== "gone") this.#notice.value = null;
    return done;
  }

  /**
   * Asks the kernel. Rejects with `Unanswered` (a sentence) when it cannot answer, is gone or late, and with the
   * signal's reason when the caller no longer wants to know.
   */
  request<A extends S["ask"]>(
    ask: A,
    options: { signal?: AbortSignal; timeout?: number } = {},
  ): Promise<S["answers"][A["ask"] & keyof S["answers"]]> {
    const { signal: abort, timeout = ANSWER_MS } = options;
    return this.#post(ask, timeout, abort).then((reply) => reply.value as S["answers"][A["ask"] & keyof S["answers"]]);
  }

  say(text: string, tone: Notice["tone"] = "info"): void {
    this.#notice.value = { text, tone };
  }

  dismiss(): void {
    this.#notice.value = null;
  }

  dispose(): void {
    for (const stop of this.stops.splice(0)) stop();
    for (const waiting of [...this.#waiting.values()]) waiting.settle(null, "The view was closed.");
  }

  /** A message that is no reply; false where it is not understood either. */
  protected told(_message: { kind?: unknown }): boolean {
    return false;
  }

  #listen(names: readonly (keyof S["traits"] & string)[], fill: Fill<S["traits"]>): void {
    for (const name of names) {
      const changed = () => {
        (this.traits[name] as Signal<unknown>).value = fill(name, this.model.get(name));
        this.#alive();
      };
      this.model.on(`change:${name}`, changed);
      this.stops.push(() => this.model.off(`change:${name}`, changed));
    }
    const heard = (message: unknown) => this.#hear(message);
    this.model.on("msg:custom", heard);
    this.stops.push(() => this.model.off("msg:custom", heard));
    const timer = setInterval(() => this.#check(), CHECK_MS);
    this.stops.push(() => clearInterval(timer));
    const line = lineOf(this.model);
    if (line) {
      const ended = () => {
        this.#ended = true;
        this.#end();
      };
      this.stops.push(line.onEnd(ended));
    }
  }

  #hear(message: unknown): void {
    this.#alive();
    const reply = message as (Reply & { kind?: unknown; id?: string }) | null;
    if (reply && typeof reply === "object" && (reply.kind === "done" || reply.kind === "answer")) {
      this.#waiting.get(reply.id ?? "")?.settle(reply, "");
    } else if (!reply || typeof reply !== "object" || !this.told(reply)) {
      once(`kernellab: a message of the kernel was not understood and is ignored (kind ${String(reply?.kind)}).`);
    }
  }

  #alive(): void {
    this.#beatAt = Date.now();
    this.#ended = false;
    if (this.#link.value !== "gone") return;
    this.#link.value = "ready";
    if (this.#notice.value?.text === this.#why) this.#notice.value = null;
    this.#away.value = false;
  }

  #check(): void {
    const now = Date.now();
    // a page that was asleep has heard nothing because nothing could reach it
    if (now - this.#checkedAt > 3 * CHECK_MS) this.#beatAt = now;
    this.#checkedAt = now;
    const away = lineOf(this.model)?.connected() === false;
    // once the connection is back, a kernel has time for some beats before it counts as gone
    if (away && this.#away.value) this.#beatAt = now - GONE_MS / 2;
    if (this.#anyLate()) this.#busy();
    if (now - this.#beatAt < GONE_MS) return;
    if (away) this.#end(true);
    else void this.#ask();
  }

  /** No beat came. A kernel whose beat was lost on its way still answers; one that is gone is asked at each check. */
  async #ask(): Promise<void> {
    if (this.#ended || this.#trying) return;
    this.#trying = true;
    try {
      const line = lineOf(this.model);
      if (await this.#answers()) return;
      if (this.#link.value !== "gone" && (await line?.repair()) && (await this.#answers())) return;
      const away = line?.connected() === false || (await line?.reaches()) === false;
      if (Date.now() - this.#beatAt >= GONE_MS) this.#end(away);
    } finally {
      this.#trying = false;
    }
  }

  /** What is late waits behind a cell. Where the front end says that the kernel is idle, the line is tried instead. */
  #busy(): void {
    if (this.#link.value === "ready" && !lineOf(this.model)?.idle()) this.#link.value = "busy";
  }

  get #why(): string {
    return this.#away.value ? AWAY : GONE;
  }

  /** where the connection stands, in words; "" while a kernel answers */
  get linkWords(): string {
    if (this.#link.value === "gone") return this.#away.value ? "not connected" : "kernel gone";
    return this.#link.value === "busy" ? "kernel busy" : "";
  }

  #end(away = false): void {
    if (this.#link.value === "gone" && this.#away.value === away) return;
    this.#away.value = away;
    this.#link.value = "gone";
    for (const waiting of [...this.#waiting.values()]) waiting.settle(null, this.#why);
    this.#notice.value = { text: this.#why, tone: "error" };
  }

  #put(message: { id: string; body: object }): void {
    try {
      this.model.send(message);
    } catch {
      // a restart of the kernel closes the comm
      this.#ended = true;
      this.#end();
    }
  }

  #post(body: S["act"] | S["ask"], timeout: number, abort?: AbortSignal): Promise<Reply> {
    if (this.#link.value === "gone") return Promise.reject(new Unanswered(this.#why, true));
    if (abort?.aborted) return Promise.reject(abort.reason);
    this.#sent += 1;
    const id = `${this.key}-${this.#sent}`;
    return new Promise((resolve, reject) => {
      const busy = setTimeout(() => this.#busy(), BUSY_MS);
      const tried = setTimeout(() => this.#tryLine(), TRY_MS);
      const late = Number.isFinite(timeout) ? setTimeout(() => settle(null, LATE), timeout) : undefined;
      const settle = (reply: Reply | null, error: string) => {
        clearTimeout(busy);
        clearTimeout(tried);
        clearTimeout(late);
        abort?.removeEventListener("abort", aborted);
        this.#waiting.delete(id);
        if (this.#link.value === "busy" && !this.#anyLate()) this.#link.value = "ready";
        if (!reply) reject(new Unanswered(error, true));
        else if (reply.error) reject(new Unanswered(reply.error));
        else resolve(reply);
      };
      const aborted = () => {
        reject(abort?.reason);
        settle(null, "");
      };
      abort?.addEventListener("abort", aborted);
      const message = { id, body };
      this.#waiting.set(id, { since: Date.now(), message, settle });
      this.#put(message);
    });
  }

  /**
   * Is the line to the kernel whole? A lost one is repaired and what waits is sent again: the kernel carries out a
   * decision once, however often it arrives. Where it cannot be repaired and the kernel runs nothing, the person hears
   * whether the server is out of reach (a machine that sleeps: what was sent arrives when it wakes) or the line is lost.
   */
  async #tryLine(): Promise<void> {
    const line = lineOf(this.model);
    if (this.#trying || !line) return;
    this.#trying = true;
    try {
      if (await this.#answers()) return;
      if (await line.repair()) {
        for (const { message } of this.#waiting.values()) this.#put(message);
        if (await this.#answers()) return;
      }
      if (!line.idle() || this.#waiting.size === 0) return;
      const reaches = await line.reaches();
      if (this.#waiting.size === 0) return;
      if (!reaches) {
        this.#end(true);
        return;
      }
      for (const waiting of [...this.#waiting.values()]) waiting.settle(null, LOST);
      this.say(LOST, "error");
    } finally {
      this.#trying = false;
    }
  }

  /** Does the kernel answer a message that waits for nothing? */
  #answers(): Promise<boolean> {
    const ping: Ping = { ping: true };
    this.#sent += 1;
    const id = `${this.key}-${this.#sent}`;
    const message = { id, body: ping };
    return new Promise((resolve) => {
      const settle = (reply: Reply | null) => {
        clearTimeout(late);
        this.#waiting.delete(id);
        resolve(reply !== null);
      };
      const late = setTimeout(() => settle(null), TRY_MS);
      this.#waiting.set(id, { since: Number.POSITIVE_INFINITY, message, settle });
      this.#put(message);
    });
  }

  #anyLate(): boolean {
    const now = Date.now();
    return [...this.#waiting.values()].some((waiting) => now - waiting.since >= BUSY_MS);
  }
}

const actionOf = (key: string): string => (JSON.parse(key) as { action: string }).action;
