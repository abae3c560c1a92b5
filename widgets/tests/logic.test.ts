import { describe, expect, it } from "vitest";
import { canSend, edited, opened, step } from "../src/card-state";
import { ticks, toPixels } from "../src/chart";
import { count, duration, guess, NONE, percent, plural, si, three, times } from "../src/format";
import { diffKind } from "../src/panels/difference";
import { describe as inWords, runs } from "../src/panels/error-map";
import { attainable, boundWords, frame, turnTicks } from "../src/panels/roofline";
import { scaleEnd } from "../src/panels/whiskers";
import { calibrationWords, readSpeedup } from "../src/prediction";
import type { Card } from "../src/protocol";
import { withoutFolders } from "../src/ui";
import { reveal, span } from "../src/virtual";
import { dump } from "./kernel";

describe("a role's choice", () => {
  it.each([
    ["rules", "rules"],
    ["model:org/name", "model:org/name"],
    ["replay:/home/me/replays/a.jsonl", "replay:a.jsonl"],
    ["replay:a.jsonl", "replay:a.jsonl"],
  ])("%s is shown as %s", (option, shown) => expect(withoutFolders(option)).toBe(shown));
});

describe("numbers", () => {
  it.each([
    [0, ""],
    [-1, ""],
    [0.0002, "1 ms"],
    [0.0126, "13 ms"],
    [0.9999, "1.0 s"],
    [3.21, "3.2 s"],
    [59.96, "1 min 00 s"],
    [75, "1 min 15 s"],
    [7260, "2 h 01 min"],
  ])("%d seconds are '%s'", (seconds, words) => expect(duration(seconds)).toBe(words));
  it.each([
    [950, "950"],
    [12_345, "12.3k"],
    [999_960, "1M"],
    [2_500_000, "2.5M"],
    [Number.NaN, NONE],
  ])("%d are '%s'", (value, words) => expect(count(value)).toBe(words));
  it.each([
    [3.2e12, "3.2 T"],
    [62.1e9, "62.1 G"],
    [1000, "1 k"],
    [12, "12"],
  ])("%d is '%s' with a prefix", (value, words) => expect(si(value)).toBe(words));
  it.each([
    [0, "0"],
    [0.0123, "0.0123"],
    [1.254, "1.25"],
    [98.7, "98.7"],
    [1234, "1234"],
    [Number.POSITIVE_INFINITY, NONE],
  ])("%d is '%s' in three digits", (value, words) => expect(three(value)).toBe(words));
  it("say a guess no more exactly than it is", () => {
    expect([3.2, 41.3, 57.6, 119, 3600].map(guess)).toEqual(["3 s", "40 s", "1 min", "2 min", "1 h 00 min"]);
  });
  it("say times, percents and plurals", () => {
    expect([times(2.913), times(12.34), times(null), percent(0.617), plural(1, "turn"), plural(2, "turn")]).toEqual([
      "2.91x",
      "12.3x",
      NONE,
      "62%",
      "1 turn",
      "2 turns",
    ]);
  });
});

describe("scales", () => {
  it("place values between two pixels", () => {
    expect([0, 5, 10].map(toPixels(0, 10, 100, 0))).toEqual([100, 50, 0]);
    expect([1, 10, 100].map(toPixels(1, 100, 0, 20, true))).toEqual([0, 10, 20]);
    expect(toPixels(3, 3, 0, 20)(3)).toBe(10);
  });
  it.each([
    [0, 3, false, 6],
    [0, 0.02, false, 4],
    [0.9, 1.1, false, 5],
    [0.1, 300, true, 6],
    [1e8, 1e13, true, 6],
    [1e-3, 1e20, true, 6],
  ])("tick from %d to %d", (low, high, log, most) => {
    const found = ticks(low, high, log, most);
    expect(found.length).toBeGreaterThan(1);
    expect(found.length).toBeLessThanOrEqual(most + 2);
    expect(found).toEqual([...found].sort((a, b) => a - b));
    expect(found.every((tick) => tick >= low * 0.99 && tick <= high * 1.01)).toBe(true);
  });
  it("end where an interval far wider than its value does not squeeze it", () => {
    expect(scaleEnd([{ value: 1.3, high: 60 }])).toBeCloseTo(3.38, 2);
    expect(scaleEnd([{ value: 2.9, high: 3 }])).toBeCloseTo(3.12, 2);
    expect(scaleEnd([{ value: 0.5, high: 0.6 }])).toBe(1.3);
  });
  it("name whole turns only", () => {
    expect(turnTicks(3, 3)).toEqual([3]);
    expect(turnTicks(3, 7).every(Number.isInteger)).toBe(true);
  });
});

describe("the roofline", () => {
  const roofline = dump("edited").roofline;
  it("tells no share of a bound that a kernel has passed", () => {
    const at = { intensity: roofline.ridge / 10, rate: 0.62 * attainable(roofline, roofline.ridge / 10) };
    expect(boundWords(roofline, at)).toBe("62% of the bound");
    expect(boundWords(roofline, { ...at, rate: 2 * at.rate })).toBe("no reliable bound here");
  });
  it("is bandwidth below the ridge and the peak above it", () => {
    expect(attainable(roofline, roofline.ridge / 10)).toBeCloseTo(roofline.peak_flops / 10, -3);
    expect(attainable(roofline, roofline.ridge * 10)).toBe(roofline.peak_flops);
  });
  it("has every point and the ridge in its window", () => {
    const { x0, x1, y0, y1 } = frame(roofline);
    expect(
      roofline.points.every(
        (point) => point.intensity > x0 && point.intensity < x1 && point.rate > y0 && point.rate < y1,
      ),
    ).toBe(true);
    expect(x1).toBeGreaterThan(roofline.ridge);
  });
});

describe("a list's window", () => {
  it("is what is in sight and a little more", () => {
    expect(span(0, 400, 40, 5000, 3)).toEqual({ first: 0, end: 13 });
    expect(span(4000, 400, 40, 5000, 3)).toEqual({ first: 97, end: 113 });
    expect(span(200_000, 400, 40, 5000, 3)).toEqual({ first: 4997, end: 5000 });
    expect(span(0, 400, 40, 0, 3)).toEqual({ first: 0, end: 0 });
  });
  it("moves as little as possible to show a row", () => {
    expect([reveal(2, 200, 400, 40), reveal(20, 200, 400, 40), reveal(8, 200, 400, 40)]).toEqual([80, 440, 200]);
  });
});

describe("the error map", () => {
  it("joins neighbours of one kind", () => {
    expect(runs(["..xx", "n.xn"])).toEqual([
      { row: 0, from: 2, length: 2, kind: "wrong" },
      { row: 1, from: 0, length: 1, kind: "infinite" },
      { row: 1, from: 2, length: 1, kind: "wrong" },
      { row: 1, from: 3, length: 1, kind: "infinite" },
    ]);
  });
  it("is told in words", () => {
    expect(inWords(["..xx", "n..."])).toBe("3 of 8 blocks wrong, 1 of them not finite, in 2 of 2 rows");
  });
});

describe("a prediction", () => {
  it.each([
    ["2.5", 2.5],
    ["2,5", 2.5],
    [" 3x ", 3],
    ["", null],
    ["fast", null],
    ["-1", null],
    ["0", null],
  ])("reads '%s' as %s", (text, value) => expect(readSpeedup(text)).toBe(value));
  it("is judged by the factor it was off", () => {
    expect(
      calibrationWords([
        { turn: "a", expected: 2, measured: 1 },
        { turn: "b", expected: 1, measured: 2 },
      ]),
    ).toContain("2.00");
    expect(calibrationWords([])).toBe("");
  });
});

describe("a card", () => {
  const card = (change: Partial<Card> = {}): Card => ({
    id: "t4:route",
    kind: "route",
    role: "conductor",
    title: "",
    text: "",
    hint: "",
    evidence: [],
    to: "coder",
    suggestion: "mask it",
    pending: true,
    editable: true,
    retry: true,
    ...change,
  });
  it("takes a newer suggestion while nothing is typed", () => {
    const state = step(opened(card()), { type: "card", card: card({ suggestion: "mask both" }) });
    expect([state.draft, edited(state)]).toEqual(["mask both", false]);
  });
  it("keeps what is typed and offers the newer suggestion", () => {
    let state = step(opened(card()), { type: "draft", text: "mine" });
    state = step(state, { type: "card", card: card({ suggestion: "mask both" }) });
    expect([state.draft, state.newer]).toEqual(["mine", "mask both"]);
    expect(step(state, { type: "take newer" })).toMatchObject({ draft: "mask both", newer: null });
  });
  it("starts anew with another card", () => {
    const state = step(step(opened(card()), { type: "draft", text: "mine" }), {
      type: "card",
      card: card({ id: "t8:route" }),
    });
    expect(state).toEqual(opened(card({ id: "t8:route" })));
  });
  it("is sent once, and can be sent again only when it was refused", () => {
    const sending = step(opened(card()), { type: "send" });
    expect([canSend(sending), step(sending, { type: "send" }) === sending]).toEqual([false, true]);
    expect(canSend(step(sending, { type: "sent" }))).toBe(false);
    const refused = step(sending, { type: "refused", error: "no" });
    expect([canSend(refused), refused.error]).toEqual([true, "no"]);
  });
});

it("tells the lines of a unified diff apart", () => {
  expect(["--- a", "+++ b", "@@ -1 +1 @@", "+x", "-x", " x"].map(diffKind)).toEqual([
    "kl-diff-file",
    "kl-diff-file",
    "kl-dim",
    "kl-added",
    "kl-removed",
    undefined,
  ]);
});
