/**
 * The drafts of one view, one for each turn that was edited: they outlast a look at another turn, a change of panel,
 * and (in the browser tab's session storage) a reload of the page.
 */

import { computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Texts } from "../protocol";
import type { Outcome, View } from "../view";
import * as draft from "./draft";

/** The head of the session, whichever turn that is; any other place is a turn's id. */
export const HEAD = "";
/** A text that was taken shows up in the session within this time, or it is not waited for any more. */
const TAKEN_MS = 3000;
/** What is typed is in the storage after this time at the latest. */
const STORE_MS = 250;

export interface DesksOptions<Text> {
  /** "sketch" or "source": part of the storage key */
  name: string;
  read: (texts: Texts) => Text;
  equal: (a: Text, b: Text) => boolean;
  /** is this, read from the storage, a text? */
  valid: (value: unknown) => value is Text;
  /** sends a draft to the kernel */
  send: (mine: draft.Draft<Text>) => Promise<Outcome>;
}

export class Desks<Text> {
  readonly view: View;
  /** HEAD while the newest turn is followed, else the turn that is looked at */
  readonly place: Signal<string> = signal(HEAD);
  readonly desk: ReadonlySignal<draft.Desk<Text>>;
  readonly standing: ReadonlySignal<draft.Standing>;
  /** may the text be changed here: at the head when the session takes edits, elsewhere when it may be forked */
  readonly editable: ReadonlySignal<boolean>;
  /** why the kernel refused the last draft; "" when it did not */
  readonly refusal: Signal<string> = signal("");

  #options: DesksOptions<Text>;
  #storing: ReturnType<typeof setTimeout> | undefined;
  #desks: Signal<ReadonlyMap<string, draft.Desk<Text>>>;

  constructor(view: View, options: DesksOptions<Text>) {
    this.view = view;
    this.#options = options;
    const empty = draft.newDesk(options.read(view.state.texts.value), "", options.equal);
    this.#desks = signal(new Map());
    this.desk = computed(() => this.#desks.value.get(this.place.value) ?? empty);
    this.standing = computed(() => draft.standing(this.desk.value));
    this.editable = computed(() => {
      const { can } = view.state.head.value;
      return this.place.value === HEAD ? can.edit : can.fork;
    });
  }

  /** Follows the view until the returned function is called. */
  follow(): () => void {
    const stop = effect(() => this.#look());
    return () => {
      stop();
      if (this.#storing !== undefined) this.#store();
    };
  }

  #look(): void {
    const texts = this.view.state.texts.value;
    let shown = this.view.state.shown.value;
    const { current } = this.view.state.head.value;
    // The traits arrive one by one: until the texts are those of the turn looked at, the last picture stays.
    if ((texts.turn ?? "") !== (shown || (current ?? ""))) return;
    const text = this.#options.read(texts);
    const head = this.#desks.peek().get(HEAD);
    if (shown === "" || shown === current) this.#arrive(HEAD, text, texts.turn ?? "");
    // An earlier turn that has the head's text is the same place: an edit there is an edit of the head.
    else if (head && this.#options.equal(text, head.theirs)) shown = HEAD;
    else this.#arrive(shown, text, shown);
    this.place.value = shown === current ? HEAD : shown;
  }

  /** is there a draft at this place? */
  has(place: string): boolean {
    return Boolean(this.#desks.peek().get(place)?.draft);
  }

  edit(text: Text): void {
    this.refusal.value = "";
    this.#change((desk) => draft.edited(desk, text));
  }

  /** "Revert", and "take theirs" when the session went on: the same, the draft is given up. */
  drop(): void {
    this.refusal.value = "";
    this.#change(draft.dropped);
  }

  /** Sends the draft. With `over` it is applied although the session has another text by now. */
  async apply(over = false): Promise<void> {
    const place = this.place.value;
    if (!this.editable.value) return;
    const now = this.standing.value;
    if (now !== "edited" && !(now === "overtaken" && over)) return;
    this.refusal.value = "";
    if (over) this.#change(draft.rebased, place);
    const mine = this.desk.value.draft;
    if (!mine) return;
    this.#change(draft.sent, place);
    const outcome = await this.#options.send(mine);
    if (outcome.error) {
      this.refusal.value = outcome.error;
      this.#change(draft.refused, place);
      return;
    }
    this.#change(draft.accepted, place);
    // also where the turn that was looked at was the head: the new head is another
    this.view.follow();
    if (place !== HEAD) {
      // It became a fork with a separate head, and this turn keeps its text.
      this.#change(draft.dropped, place);
      return;
    }
    setTimeout(() => this.#change(draft.lapsed, place), TAKEN_MS);
  }

  #arrive(place: string, theirs: Text, turn: string): void {
    const known = this.#desks.peek().get(place);
    if (known) {
      this.#change((desk) => draft.arrived(desk, theirs, turn), place);
      return;
    }
    const fresh = draft.newDesk(theirs, turn, this.#options.equal);
    const stored = this.#stored()[place];
    const kept = stored && this.#valid(stored) && !this.#options.equal(stored.text, theirs) ? stored : null;
    this.#set(place, { ...fresh, draft: kept });
  }

  #change(step: (desk: draft.Desk<Text>) => draft.Desk<Text>, place = this.place.peek()): void {
    const desk = this.#desks.peek().get(place);
    if (!desk) return;
    const next = step(desk);
    if (next === desk) return;
    this.#set(place, next);
  }

  #set(place: string, desk: draft.Desk<Text>): void {
    const before = this.#desks.peek().get(place)?.draft ?? null;
    const desks = new Map(this.#desks.peek());
    // Turns without a draft are read again when they are looked at again.
    for (const [key, other] of desks) if (key !== place && key !== HEAD && !other.draft) desks.delete(key);
    this.#desks.value = desks.set(place, desk);
    if (place === HEAD) {
      const { name } = this.#options;
      const others = this.view.unapplied.peek().filter((one) => one !== name);
      const open = desk.draft && draft.standing(desk) !== "sending";
      if (open || others.length < this.view.unapplied.peek().length)
        this.view.unapplied.value = open ? [...others, name] : others;
    }
    // not at every key: the drafts of a source can be long
    if (desk.draft !== before) this.#storing ??= setTimeout(() => this.#store(), STORE_MS);
  }

  #key(): string {
    const { id, name } = this.view.state.head.peek();
    return `kernellab/${id || name}/${this.#options.name}`;
  }

  #store(): void {
    clearTimeout(this.#storing);
    this.#storing = undefined;
    const drafts = [...this.#desks.peek()].flatMap(([place, desk]) => (desk.draft ? [[place, desk.draft]] : []));
    try {
      if (drafts.length) sessionStorage.setItem(this.#key(), JSON.stringify(Object.fromEntries(drafts)));
      else sessionStorage.removeItem(this.#key());
    } catch {
      // No storage, or a full one: the draft lives as long as the page.
    }
  }

  #stored(): Record<string, unknown> {
    try {
      const found: unknown = JSON.parse(sessionStorage.getItem(this.#key()) ?? "{}");
      return found && typeof found === "object" ? (found as Record<string, unknown>) : {};
    } catch {
      return {};
    }
  }

  #valid(value: unknown): value is draft.Draft<Text> {
    const { text, from, turn } = (value ?? {}) as Partial<draft.Draft<unknown>>;
    return this.#options.valid(text) && this.#options.valid(from) && typeof turn === "string";
  }
}
