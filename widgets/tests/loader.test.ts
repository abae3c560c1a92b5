/** The few lines that each notebook holds in place of the view's code. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

interface Loaded {
  render: (given: { model: object; el: HTMLElement }) => Promise<() => void>;
}

const SOURCE = readFileSync(join(import.meta.dirname, "../../kernellab/notebook/loader.js"), "utf8");

const load = async (): Promise<Loaded> => {
  (globalThis as { kernellabViews?: unknown }).kernellabViews = undefined;
  const url = `data:text/javascript,${encodeURIComponent(SOURCE)}`;
  return ((await import(/* @vite-ignore */ url)) as { default: Loaded }).default;
};

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it("shows the saved view, and raises nothing, where the kernel that it asks is gone", async () => {
  const send = vi.fn(() => {
    throw new Error("Cannot send");
  });
  const el = document.createElement("div");
  const model = { send, on: () => {}, get: () => "<p>saved</p>" };
  const leave = await (await load()).render({ model, el });
  // an error of a timer would end this call
  await vi.advanceTimersByTimeAsync(20_000);
  expect(send.mock.calls.length).toBeGreaterThan(1);
  expect(el.textContent).toBe("saved");
  leave();
  const asked = send.mock.calls.length;
  await vi.advanceTimersByTimeAsync(60_000);
  expect(send.mock.calls.length).toBe(asked);
});
