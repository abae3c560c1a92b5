/**
 * Diagnostics while typing: the text goes to the kernel's checker when the keys rest, and only the answer to the
 * newest text counts.
 *
 * Every text has a version. `data-doc-version` and `data-checked-version` on the panel and the performance measure
 * "kernellab-check" (from the last keystroke to the diagnostics in the DOM) let a test time it from outside.
 */

import { type Signal, signal } from "@preact/signals";
import type { Checked } from "../protocol";

/** Rest between the last keystroke and the question; the first key after a longer rest asks at once. */
export const DEBOUNCE_MS = 15;
export const REST_MS = 90;
/** A question older than this makes the editor say that the kernel is busy. */
export const BUSY_MS = 300;
export const MEASURE = "kernellab-check";

export type CheckRequest = (text: string, signal: AbortSignal) => Promise<Checked>;

export class Checker {
  /** version of the newest text that was given */
  readonly version: Signal<number> = signal(0);
  /** version of the text that the last answer is about */
  readonly checked: Signal<number> = signal(0);
  readonly busy: Signal<boolean> = signal(false);
  /** why the checker did not answer, a sentence; "" when it did */
  readonly trouble: Signal<string> = signal("");

  #request: CheckRequest;
  #apply: (checked: Checked) => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #busyTimer: ReturnType<typeof setTimeout> | undefined;
  #abort: AbortController | null = null;
  #last = Number.NEGATIVE_INFINITY;

  constructor(request: CheckRequest, apply: (checked: Checked) => void) {
    this.#request = request;
    this.#apply = apply;
  }

  /** Asks about `text` when nothing newer comes for a moment; at once when no one types. */
  ask(text: string, wait = DEBOUNCE_MS): void {
    const version = this.version.value + 1;
    const since = performance.now();
    const rested = since - this.#last > REST_MS && this.#abort === null;
    this.#last = since;
    this.version.value = version;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#send(text, version, since), rested ? 0 : wait);
  }

  /** Forgets what is under way: the text belongs to another turn now, or the editor is gone. */
  cancel(): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#busyTimer);
    this.#busyTimer = undefined;
    this.busy.value = false;
    this.#abort?.abort();
    this.#abort = null;
  }

  async #send(text: string, version: number, since: number): Promise<void> {
    this.#abort?.abort();
    const abort = new AbortController();
    this.#abort = abort;
    // The clock of "busy" runs from the oldest unanswered question: typing on must not restart it.
    this.#busyTimer ??= setTimeout(() => {
      this.busy.value = true;
    }, BUSY_MS);
    let answer: Checked | null = null;
    let trouble = "";
    try {
      answer = await this.#request(text, abort.signal);
    } catch (error) {
      trouble = error instanceof Error ? error.message : String(error);
    }
    if (this.#abort !== abort) return;
    this.#abort = null;
    clearTimeout(this.#busyTimer);
    this.#busyTimer = undefined;
    this.busy.value = false;
    // A newer text waits for its turn, or the kernel has seen one: this answer is about nothing that is on the screen.
    if (version !== this.version.value || trouble === "superseded") return;
    this.trouble.value = trouble;
    if (!answer) return;
    this.#apply(answer);
    this.checked.value = version;
    performance.measure(MEASURE, { start: since, end: performance.now(), detail: { version } });
    // Observers have it already; the page's own list would grow with every key.
    performance.clearMeasures(MEASURE);
  }
}
