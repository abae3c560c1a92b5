/** A kernel in memory: a session's dumped traits; it answers only when a test says so, or at once with `answers`. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { render as mount } from "preact";
import { act } from "preact/test-utils";
import type { Ask, Head, Traits } from "../src/protocol";
import type { Model, ToKernel } from "../src/view";
import widget from "../src/workbench";

export const dump = (name: string): Traits =>
  JSON.parse(readFileSync(join(import.meta.dirname, "../fixtures", `${name}.json`), "utf8"));

// happy-dom lays nothing out; a list is as high as on a screen
Object.defineProperty(HTMLElement.prototype, "clientHeight", { configurable: true, get: () => 800 });

type Listener = (...args: never[]) => void;

export class Kernel implements Model {
  traits: Record<string, unknown>;
  sent: ToKernel[] = [];
  answers: Partial<Record<Ask["ask"], unknown>> = {};
  /** does it answer the question whether it is there? */
  pong = false;
  #listeners = new Map<string, Set<Listener>>();

  constructor(traits: object = dump("designed")) {
    this.traits = { ...traits };
  }

  get(name: string): unknown {
    return this.traits[name];
  }
  set(name: string, value: unknown): void {
    this.traits[name] = value;
  }
  save_changes(): void {}
  on(event: string, listener: Listener): void {
    this.#listeners.set(event, (this.#listeners.get(event) ?? new Set()).add(listener));
  }
  off(event: string, listener: Listener): void {
    this.#listeners.get(event)?.delete(listener);
  }
  send(content: unknown): void {
    const message = content as ToKernel;
    this.sent.push(message);
    if ("ping" in message.body && this.pong) this.reply({ kind: "answer", id: message.id, value: true });
    if ("ask" in message.body && message.body.ask in this.answers) {
      this.reply({ kind: "answer", id: message.id, value: this.answers[message.body.ask] });
    }
  }

  listeners(): number {
    return [...this.#listeners.values()].reduce((sum, all) => sum + all.size, 0);
  }
  /** The kernel sets a trait. */
  put(name: keyof Traits, value: unknown): void {
    this.traits[name] = value;
    this.#emit(`change:${name}`);
  }
  head(change: Partial<Head>): void {
    this.put("head", { ...(this.traits.head as Head), ...change });
  }
  reply(message: unknown): void {
    this.#emit("msg:custom", message);
  }
  /** Answers the last decision or question. */
  done(error?: string): void {
    const last = this.sent[this.sent.length - 1];
    this.reply({ kind: "done", id: last?.id, ...(error ? { error } : {}) });
  }
  acts(): unknown[] {
    return this.sent.map((message) => message.body).filter((body) => "action" in body);
  }
  #emit(event: string, ...args: unknown[]): void {
    for (const listener of [...(this.#listeners.get(event) ?? [])]) (listener as (...all: unknown[]) => void)(...args);
  }
}

export interface Shown {
  kernel: Kernel;
  el: HTMLElement;
  find: <E extends HTMLElement = HTMLElement>(selector: string) => E;
  all: (selector: string) => HTMLElement[];
  text: (selector: string) => string;
  click: (selector: string) => Promise<void>;
  type: (selector: string, text: string) => Promise<void>;
  key: (selector: string, key: string, more?: KeyboardEventInit) => Promise<void>;
  change: (what: () => void) => Promise<void>;
  open: (panel: string) => Promise<void>;
  close: () => void;
}

/** The whole workbench on a kernel, as anywidget would show it. */
export async function show(kernel: Kernel): Promise<Shown> {
  const el = document.createElement("div");
  document.body.append(el);
  let dispose = () => {};
  await act(async () => {
    dispose = widget.render({ model: kernel, el });
  });
  const find = <E extends HTMLElement = HTMLElement>(selector: string): E => {
    const found = el.querySelector<E>(selector);
    if (!found) throw new Error(`nothing matches ${selector} in ${el.innerHTML.slice(0, 4000)}`);
    return found;
  };
  const change = async (what: () => void) => {
    await act(async () => {
      what();
      await Promise.resolve();
    });
  };
  const shown: Shown = {
    kernel,
    el,
    find,
    all: (selector) => [...el.querySelectorAll<HTMLElement>(selector)],
    text: (selector) => find(selector).textContent ?? "",
    change,
    click: (selector) => change(() => find(selector).click()),
    type: (selector, text) =>
      change(() => {
        const area = find<HTMLTextAreaElement>(selector);
        area.value = text;
        area.dispatchEvent(new Event("input", { bubbles: true }));
      }),
    key: (selector, key, more = {}) =>
      change(() => {
        find(selector).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
      }),
    open: (panel) => change(() => find(`[role=tab][id$="-${panel}"]`).click()),
    close: () => {
      dispose();
      mount(null, el);
      el.remove();
    },
  };
  return shown;
}

/**
 * Until timers that set one another have run, on a busy machine too: there one long timer is due together with the
 * first of two short ones, and comes before the second.
 */
export async function rest(milliseconds: number): Promise<void> {
  for (let past = 0; past < milliseconds; past += 10) await new Promise((done) => setTimeout(done, 10));
}
