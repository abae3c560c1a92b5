/** Which panel shows what a question is about: what the turn made, so that nobody approves what is out of sight. */
import type { Card, Detail } from "./protocol";
import type { Panel } from "./view";

const MADE: Record<string, Panel> = { designer: "sketch", coder: "code", verifier: "verdict" };

/** The panel for an open question; null where what is open may stay. */
export function panelOf(card: Card | null, detail: Detail): Panel | null {
  if (!card?.pending) return null;
  if (card.kind === "route") return detail.verdict ? "verdict" : "sketch";
  return MADE[card.role] ?? null;
}
