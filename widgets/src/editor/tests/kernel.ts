/** A kernel of memory for the panels' tests: real traits of a session, and answers that the test gives. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Act, Ask, FromKernel, Traits } from "../../protocol";
import { type Model, type ToKernel, View } from "../../view";

const FIXTURES = join(import.meta.dirname, "../../../fixtures");

export const fixture = (name: string) => JSON.parse(readFileSync(join(FIXTURES, `${name}.json`), "utf8"));

export class Kernel implements Model {
  traits: Traits;
  /** decisions and questions in the order in which they came */
  acts: Act[] = [];
  asks: Ask[] = [];
  /** what an act is answered with; an error refuses it */
  refusal = "";
  answers: Partial<Record<Ask["ask"], (ask: Ask) => unknown>>;
  #listeners = new Map<string, Set<(...args: never[]) => void>>();

  constructor(name = "designed") {
    this.traits = fixture(name);
    const answers = fixture("answers");
    this.answers = Object.fromEntries(
      ["check", "complete", "hover", "artefact"].map((ask) => [ask, () => structuredClone(answers[ask].value)]),
    );
  }

  get(name: string): unknown {
    return this.traits[name as keyof Traits];
  }

  /** The front end sets a trait. */
  set(name: string, value: unknown): void {
    this.traits = { ...this.traits, [name]: value };
  }

  /** The kernel sets a trait. */
  put<K extends keyof Traits>(name: K, change: Partial<Traits[K]> | Traits[K]): void {
    const old = this.traits[name];
    const value = typeof old === "object" && !Array.isArray(old) ? { ...old, ...(change as object) } : change;
    this.traits = { ...this.traits, [name]: value };
    this.#emit(`change:${name}`);
  }

  save_changes(): void {}

  on(event: string, listener: (...args: never[]) => void): void {
    this.#listeners.set(event, (this.#listeners.get(event) ?? new Set()).add(listener));
  }

  off(event: string, listener: (...args: never[]) => void): void {
    this.#listeners.get(event)?.delete(listener);
  }

  send(content: unknown): void {
    const { id, body } = content as ToKernel;
    const reply: FromKernel = "ask" in body ? this.#answer(id, body) : this.#carryOut(id, body);
    queueMicrotask(() => this.#emit("msg:custom", reply));
  }

  #answer(id: string, ask: Ask): FromKernel {
    this.asks.push(ask);
    const answer = this.answers[ask.ask];
    return answer ? { kind: "answer", id, value: answer(ask) } : { kind: "answer", id, error: "no answer" };
  }

  #carryOut(id: string, act: Act): FromKernel {
    this.acts.push(act);
    return this.refusal ? { kind: "done", id, error: this.refusal } : { kind: "done", id };
  }

  #emit(event: string, ...args: unknown[]): void {
    for (const listener of [...(this.#listeners.get(event) ?? [])]) (listener as (...all: unknown[]) => void)(...args);
  }
}

export function viewOf(kernel: Kernel): View {
  sessionStorage.clear();
  return new View(kernel);
}
