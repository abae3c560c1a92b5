/**
 * What a person has written and not yet applied, and how it stands to what the session has.
 *
 * One value, changed only by the functions below; nothing here knows about editors or messages. `Text` is a sketch's
 * text or a source's files: drafts of both behave alike.
 */

export interface Draft<Text> {
  text: Text;
  /** what it was derived from, and the turn that had it: the `base` of the act */
  from: Text;
  turn: string;
}

export interface Desk<Text> {
  /** the session's text and the turn that has it */
  theirs: Text;
  turn: string;
  draft: Draft<Text> | null;
  /** sent to the kernel and not answered yet */
  sending: Text | null;
  /** taken by the kernel, and the session does not show it yet */
  taken: Text | null;
  equal: (a: Text, b: Text) => boolean;
}

/**
 * same: nothing of the person's own. edited: a draft of what the session has. sending: on its way. overtaken: the
 * session has another text than the one that the draft was derived from.
 */
export type Standing = "same" | "edited" | "sending" | "overtaken";

export function newDesk<Text>(theirs: Text, turn: string, equal: (a: Text, b: Text) => boolean): Desk<Text> {
  return { theirs, turn, draft: null, sending: null, taken: null, equal };
}

export function standing<Text>(desk: Desk<Text>): Standing {
  if (!desk.draft) return "same";
  if (desk.sending !== null || desk.taken !== null) return "sending";
  return desk.equal(desk.draft.from, desk.theirs) ? "edited" : "overtaken";
}

/** What the editor shows. */
export function shownText<Text>(desk: Desk<Text>): Text {
  return desk.draft ? desk.draft.text : desk.theirs;
}

/** The session says what it has. A draft stays, unless it is that very text. */
export function arrived<Text>(desk: Desk<Text>, theirs: Text, turn: string): Desk<Text> {
  const next = { ...desk, theirs, turn };
  const { draft, taken } = desk;
  if (!draft) return next;
  if (desk.equal(draft.text, theirs)) return { ...next, draft: null, taken: null };
  if (taken === null || desk.equal(theirs, desk.theirs)) return next;
  // The session has what it made of the text that it took: what was typed since is an edit of that.
  if (desk.equal(draft.text, taken)) return { ...next, draft: null, taken: null };
  return { ...next, draft: { ...draft, from: theirs, turn }, taken: null };
}

/** The person typed. Back to the session's own text is no draft. */
export function edited<Text>(desk: Desk<Text>, text: Text): Desk<Text> {
  if (desk.equal(text, shownText(desk))) return desk;
  const waits = desk.sending !== null || desk.taken !== null;
  if (!waits && desk.equal(text, desk.theirs)) return { ...desk, draft: null };
  const draft = desk.draft ?? { from: desk.theirs, turn: desk.turn, text };
  return { ...desk, draft: { ...draft, text } };
}

/** The draft is given up: "revert" and "take theirs". */
export function dropped<Text>(desk: Desk<Text>): Desk<Text> {
  return { ...desk, draft: null, sending: null, taken: null };
}

/** "Apply mine": the draft becomes an edit of what the session has now. */
export function rebased<Text>(desk: Desk<Text>): Desk<Text> {
  return desk.draft ? { ...desk, draft: { ...desk.draft, from: desk.theirs, turn: desk.turn } } : desk;
}

export function sent<Text>(desk: Desk<Text>): Desk<Text> {
  return desk.draft ? { ...desk, sending: desk.draft.text } : desk;
}

/** The kernel took what was sent. It is shown until the session has it, so that the old text does not flash up. */
export function accepted<Text>(desk: Desk<Text>): Desk<Text> {
  if (desk.sending === null) return desk;
  return { ...desk, sending: null, taken: desk.draft ? desk.sending : null };
}

/** The kernel refused what was sent: the draft stays as it is. */
export function refused<Text>(desk: Desk<Text>): Desk<Text> {
  return { ...desk, sending: null };
}

/** The session did not come to show what it took within a while (it stopped, or another edit came first). */
export function lapsed<Text>(desk: Desk<Text>): Desk<Text> {
  return { ...desk, taken: null };
}
