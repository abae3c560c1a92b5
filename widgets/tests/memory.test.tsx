import { afterEach, expect, it } from "vitest";
import type { MemoryHit } from "../src/protocol";
import { dump, Kernel, type Shown, show } from "./kernel";

let shown: Shown;
afterEach(() => shown.close());

const HIT: MemoryHit = {
  id: "e1",
  name: "rms_norm",
  why: "rms_norm: 91% of the computation, stale: measured on another chip.",
  score: 0.8,
  logic: 0.91,
  shape: 0.7,
  value: 0.6,
  draft: { mean: 0.75, uses: 4 },
  refine: { mean: 0.5, uses: 0 },
  thumb: 0,
  pinned: false,
  stale: "measured on another chip",
  provenance: "session s-1, t3, by rules",
  sketch: "sketch rms {}",
};

const open = async (hits: MemoryHit[], note = "") => {
  const kernel = new Kernel(dump("designed"));
  kernel.answers = { memory: { hits, note } };
  shown = await show(kernel);
  await shown.open("memory");
  return shown;
};

it("shows each hit with why, its scores, what was learnt and where it is from", async () => {
  await open([HIT]);
  const said = shown.text("[aria-label=memory]");
  expect(said).toContain("91% of the computation");
  expect(said).toContain("Score 0.80: computation 0.91, shapes 0.70, value 0.60.");
  expect(said).toContain("as a first draft 0.75 of 1 in 4 uses, to refine not tried");
  expect(said).toContain("From session s-1, t3, by rules. Stale: measured on another chip.");
});

it("sends a person's word on an entry, and asks for words", async () => {
  const { kernel } = await open([HIT]);
  await shown.click("[data-action=memory-pin]");
  expect(kernel.acts().at(-1)).toEqual({ action: "judge", id: "e1", thumb: 0, pinned: true });
  await shown.click("[data-action=memory-hide]");
  expect(kernel.acts().at(-1)).toEqual({ action: "judge", id: "e1", thumb: -1, pinned: false });
  await shown.click("[data-action=memory-forget]");
  expect(kernel.acts().at(-1)).toEqual({ action: "forget", id: "e1" });
  await shown.click("[data-action=memory-remember]");
  expect(kernel.acts().at(-1)).toEqual({ action: "remember" });
  await shown.type("[aria-label='words to look for']", "layer norm");
  await shown.click("[data-action=memory-search]");
  expect(kernel.sent.at(-1)?.body).toEqual({ ask: "memory", words: "layer norm" });
});

it("says why there is nothing", async () => {
  await open([], "Nothing was remembered in this workspace yet.");
  expect(shown.text("[aria-label=memory]")).toContain("Nothing was remembered");
});
