import { describe, expect, it } from "vitest";
import * as draft from "../draft";

const desk = (theirs = "a", turn = "t1") => draft.newDesk(theirs, turn, (a: string, b: string) => a === b);

describe("a draft", () => {
  it("is what was typed, with the text and the turn that it was derived from", () => {
    const now = draft.edited(draft.edited(desk(), "ab"), "abc");
    expect(now.draft).toEqual({ text: "abc", from: "a", turn: "t1" });
    expect(draft.standing(now)).toBe("edited");
    expect(draft.shownText(now)).toBe("abc");
  });

  it("is none when the session's own text was typed back", () => {
    expect(draft.edited(draft.edited(desk(), "ab"), "a").draft).toBeNull();
  });

  it("continues over turns that keep the text, and stays derived from where it began", () => {
    const now = draft.arrived(draft.edited(desk(), "ab"), "a", "t2");
    expect(draft.standing(now)).toBe("edited");
    expect(now.draft?.turn).toBe("t1");
  });

  it("is overtaken, and kept, when the session gets another text", () => {
    const now = draft.arrived(draft.edited(desk(), "ab"), "x", "t2");
    expect(draft.standing(now)).toBe("overtaken");
    expect(draft.shownText(now)).toBe("ab");
  });

  it("is no longer overtaken when the session comes back to the text (a fork, an undo)", () => {
    const moved = draft.arrived(draft.edited(desk(), "ab"), "x", "t2");
    expect(draft.standing(draft.arrived(moved, "a", "t3"))).toBe("edited");
  });

  it("ends when the session has that very text, whoever wrote it", () => {
    const now = draft.arrived(draft.edited(desk(), "ab"), "ab", "t2");
    expect(draft.standing(now)).toBe("same");
  });

  it("can be given up for theirs, or rebased on it", () => {
    const moved = draft.arrived(draft.edited(desk(), "ab"), "x", "t2");
    expect(draft.shownText(draft.dropped(moved))).toBe("x");
    const mine = draft.rebased(moved);
    expect(draft.standing(mine)).toBe("edited");
    expect(mine.draft).toEqual({ text: "ab", from: "x", turn: "t2" });
  });
});

describe("a draft that is sent", () => {
  const out = () => draft.sent(draft.edited(desk(), "ab"));

  it("is on its way until it is answered, and kept when it is refused", () => {
    expect(draft.standing(out())).toBe("sending");
    const back = draft.refused(out());
    expect(draft.standing(back)).toBe("edited");
    expect(draft.shownText(back)).toBe("ab");
  });

  it("is shown on until the session shows it: the old text does not flash up", () => {
    const taken = draft.accepted(out());
    expect(draft.shownText(taken)).toBe("ab");
    expect(draft.standing(taken)).toBe("sending");
    expect(draft.standing(draft.arrived(taken, "ab", "t2"))).toBe("same");
  });

  it("ends in what the session made of it (its canonical form)", () => {
    const now = draft.arrived(draft.accepted(out()), "a b", "t2");
    expect(draft.standing(now)).toBe("same");
    expect(draft.shownText(now)).toBe("a b");
  });

  it("may arrive before its answer", () => {
    const now = draft.accepted(draft.arrived(out(), "ab", "t2"));
    expect(draft.standing(now)).toBe("same");
    expect(now.taken).toBeNull();
  });

  it("keeps what was typed meanwhile as an edit of it", () => {
    const typed = draft.accepted(draft.edited(out(), "abc"));
    const now = draft.arrived(typed, "ab", "t2");
    expect(draft.standing(now)).toBe("edited");
    expect(now.draft).toEqual({ text: "abc", from: "ab", turn: "t2" });
  });

  it("is not waited for for ever", () => {
    expect(draft.standing(draft.lapsed(draft.accepted(out())))).toBe("edited");
  });
});
