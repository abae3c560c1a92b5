/** Which panel shows what a question is about: what the turn made, so that no one approves what is out of sight. */
import type { Card, Detail } from "./protocol";
import type { Panel, View } from "./view";

const MADE: Record<string, Panel> = { designer: "sketch", coder: "code", verifier: "verdict" };

/** The panel for an open question; null where what is open may stay. */
export function panelOf(card: Card | null, detail: Detail): Panel | null {
  if (!card?.pending) return null;
  if (card.kind === "route") return detail.verdict ? "verdict" : "sketch";
  return MADE[card.role] ?? null;
}

/** Does an open question ask about what a model or an agent wrote in this role? Null where it does not. */
export function writtenByAgent(view: View, role: "designer" | "coder"): string | null {
  const { card } = view.state.head.value;
  const row = view.row.value;
  const open = card?.pending && card.kind === "turn" && card.role === role && row?.author === "model";
  return open ? card.id : null;
}
