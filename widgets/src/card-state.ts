/**
 * What a person has done with a card so far: typed, sent, refused. Updates of the same card never take typed words away;
 * a new card is a new start.
 */
import type { Card } from "./protocol";

export interface CardState {
  id: string;
  /** the kernel's suggestion that the draft began with */
  base: string;
  draft: string;
  /** a newer suggestion of the kernel while the draft is the person's */
  newer: string | null;
  phase: "open" | "sending" | "sent" | "refused";
  error: string;
}

export type CardEvent =
  | { type: "card"; card: Card }
  | { type: "draft"; text: string }
  | { type: "take newer" }
  | { type: "send" }
  | { type: "sent" }
  | { type: "refused"; error: string };

export const opened = (card: Card): CardState => ({
  id: card.id,
  base: card.suggestion,
  draft: card.suggestion,
  newer: null,
  phase: "open",
  error: "",
});

export const edited = (state: CardState): boolean => state.draft !== state.base;

/** A click counts only while nothing is under way. */
export const canSend = (state: CardState): boolean => state.phase === "open" || state.phase === "refused";

export function step(state: CardState, event: CardEvent): CardState {
  switch (event.type) {
    case "card": {
      const { card } = event;
      if (card.id !== state.id) return opened(card);
      if (card.suggestion === state.base) return state;
      if (edited(state) && card.suggestion !== state.draft) return { ...state, newer: card.suggestion };
      return { ...state, base: card.suggestion, draft: card.suggestion, newer: null };
    }
    case "draft":
      return { ...state, draft: event.text };
    case "take newer":
      return state.newer === null ? state : { ...state, base: state.newer, draft: state.newer, newer: null };
    case "send":
      return canSend(state) ? { ...state, phase: "sending", error: "" } : state;
    case "sent":
      return { ...state, phase: "sent", error: "" };
    case "refused":
      return { ...state, phase: "refused", error: event.error };
  }
}
