import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Checked } from "../../protocol";
import { Checker, DEBOUNCE_MS, MEASURE } from "../checking";

const answer = (name: string): Checked => ({ diagnostics: [], cost: [{ text: name, title: "" }], pins: [] });

/** A kernel whose answers come when the test says so. */
function kernel() {
  const asked: { text: string; signal: AbortSignal; answer: (value: Checked) => void; fail: (why: string) => void }[] =
    [];
  const request = (text: string, signal: AbortSignal) =>
    new Promise<Checked>((resolve, reject) => {
      asked.push({ text, signal, answer: resolve, fail: (why) => reject(new Error(why)) });
    });
  const applied: string[] = [];
  const checker = new Checker(request, (checked) => applied.push(checked.cost[0]?.text ?? ""));
  return { asked, applied, checker };
}

describe("diagnostics while typing", () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());
  const rest = () => vi.advanceTimersByTimeAsync(DEBOUNCE_MS + 1);

  it("ask once when the keys rest", async () => {
    const { asked, checker } = kernel();
    for (const text of ["a", "ab", "abc"]) {
      checker.ask(text);
      await vi.advanceTimersByTimeAsync(5);
    }
    // the first key after a rest at once, the others together
    expect(asked.map((one) => one.text)).toEqual(["a"]);
    await rest();
    expect(asked.map((one) => one.text)).toEqual(["a", "abc"]);
  });

  it("drop the answer to an older text, whichever comes first", async () => {
    const { asked, applied, checker } = kernel();
    checker.ask("old");
    await rest();
    checker.ask("new");
    await rest();
    expect(asked[0]?.signal.aborted).toBe(true);
    asked[1]?.answer(answer("new"));
    await rest();
    asked[0]?.answer(answer("old"));
    await rest();
    expect(applied).toEqual(["new"]);
    expect(checker.checked.value).toBe(checker.version.value);
  });

  it("drop an answer that comes while newer keys still wait", async () => {
    const { asked, applied, checker } = kernel();
    checker.ask("old");
    await rest();
    checker.ask("new");
    asked[0]?.answer(answer("old"));
    await vi.advanceTimersByTimeAsync(1);
    expect(applied).toEqual([]);
    expect(checker.checked.value).toBe(0);
    await rest();
    asked[1]?.answer(answer("new"));
    await rest();
    expect(applied).toEqual(["new"]);
  });

  it("say that the kernel is busy after 300 ms, though the person types on", async () => {
    const { asked, checker } = kernel();
    checker.ask("a");
    await rest();
    for (let key = 0; key < 4; key += 1) {
      await vi.advanceTimersByTimeAsync(60);
      checker.ask(`a${key}`);
    }
    expect(checker.busy.value).toBe(false);
    await vi.advanceTimersByTimeAsync(100);
    expect(checker.busy.value).toBe(true);
    asked.at(-1)?.answer(answer("done"));
    await rest();
    expect(checker.busy.value).toBe(false);
  });

  it("tell why there is no answer, and forget it with the next one", async () => {
    const { asked, applied, checker } = kernel();
    checker.ask("a");
    await rest();
    asked[0]?.fail("The kernel is gone.");
    await rest();
    expect(checker.trouble.value).toBe("The kernel is gone.");
    checker.ask("b");
    await rest();
    asked[1]?.answer(answer("b"));
    await rest();
    expect(checker.trouble.value).toBe("");
    expect(applied).toEqual(["b"]);
  });

  it("say nothing of a check that a newer one has overtaken in the kernel", async () => {
    const { asked, checker } = kernel();
    checker.ask("a");
    await rest();
    asked[0]?.fail("superseded");
    await rest();
    expect(checker.trouble.value).toBe("");
  });

  it("are forgotten when the editor goes", async () => {
    const { asked, applied, checker } = kernel();
    checker.ask("a");
    await rest();
    checker.ask("b");
    checker.cancel();
    asked[0]?.answer(answer("a"));
    await vi.advanceTimersByTimeAsync(1000);
    expect(asked).toHaveLength(1);
    expect(applied).toEqual([]);
    expect(checker.busy.value).toBe(false);
  });

  it("can be timed from outside, each with its version", async () => {
    vi.useRealTimers();
    const seen: unknown[] = [];
    const observer = new PerformanceObserver((list) => {
      for (const entry of list.getEntriesByName(MEASURE)) seen.push((entry as PerformanceMeasure).detail);
    });
    observer.observe({ entryTypes: ["measure"] });
    const checker = new Checker(
      async () => answer("a"),
      () => {},
    );
    checker.ask("a", 0);
    await vi.waitFor(() => expect(seen).toEqual([{ version: 1 }]), 20_000);
    observer.disconnect();
    expect(performance.getEntriesByName(MEASURE)).toEqual([]);
  });
});
