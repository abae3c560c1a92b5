import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { LOST, TRY_MS } from "../src/link";
import { AWAY, BUSY_MS, GONE, GONE_MS, LATE, Unanswered, View } from "../src/view";
import { dump, Kernel } from "./kernel";

let kernel: Kernel;
let view: View;

beforeEach(() => {
  vi.useFakeTimers();
  kernel = new Kernel();
  view = new View(kernel);
});
afterEach(() => {
  view.dispose();
  vi.useRealTimers();
});

const settled = async () => vi.advanceTimersByTimeAsync(0);

describe("state", () => {
  it("is the kernel's traits, and follows them", () => {
    expect(view.state.head.value.name).toBe("rms_norm");
    kernel.head({ status: "failed" });
    expect(view.state.head.value.status).toBe("failed");
  });

  it("has every field although the kernel sent none", () => {
    const bare = new View(new Kernel({}));
    expect(bare.state.head.value.can.step).toBe(false);
    expect(bare.state.detail.value.stages).toEqual([]);
    expect(bare.at.value).toBeNull();
    bare.dispose();
  });

  it("ignores fields and messages that it does not know, with one line each on the console", () => {
    const said = vi.spyOn(console, "info").mockImplementation(() => {});
    kernel.head({ weather: "fine" } as never);
    kernel.head({ weather: "rain" } as never);
    kernel.reply({ kind: "song", id: "x" });
    kernel.reply(null);
    expect(view.state.head.value).not.toHaveProperty("weather");
    expect(said.mock.calls.filter(([line]) => String(line).includes("weather"))).toHaveLength(1);
    expect(said.mock.calls.filter(([line]) => String(line).includes("kind song"))).toHaveLength(1);
    said.mockRestore();
  });

  it("keeps the last good shape when a field is null that must not be", () => {
    kernel.put("detail", { ...dump("designed").detail, stages: null });
    expect(view.state.detail.value.stages).toEqual([]);
  });

  it("joins changed rows to the whole list", () => {
    const { changed } = dump("designed");
    const count = view.rows.value.length;
    kernel.put("turns", changed);
    kernel.put("changed", [{ ...changed[0], note: "newer" }]);
    expect(view.rows.value).toHaveLength(count);
    expect(view.rows.value[0]?.note).toBe("newer");
  });

  it("says when the kernel speaks another protocol", () => {
    const other = new Kernel();
    other.traits.head = { ...(other.traits.head as object), protocol: 99 };
    const strange = new View(other);
    expect(strange.notice.value?.text).toContain("protocol");
    strange.dispose();
  });
});

describe("a kernel that was restarted", () => {
  it("refuses a decision with the remedy at once, not with the comm's error", async () => {
    vi.spyOn(kernel, "send").mockImplementation(() => {
      throw new Error("Cannot send");
    });
    const outcome = view.send({ action: "step" });
    await settled();
    expect(await outcome).toEqual({ error: GONE });
    expect([view.link.value, view.notice.value?.text]).toEqual(["gone", GONE]);
  });
});

describe("looking at a turn", () => {
  it("tells the kernel, and follows the head again", () => {
    view.look("t1");
    expect([kernel.traits.shown, view.at.value, view.following.value]).toEqual(["t1", "t1", false]);
    view.follow();
    expect(kernel.traits.shown).toBe("");
  });

  it("looks at the newest turn by following it", () => {
    view.look("t1");
    view.look(view.state.head.value.current as string);
    expect(kernel.traits.shown).toBe("");
  });

  it("sends only the last of a run of arrow keys", async () => {
    view.look("t1", true);
    view.look("t2", true);
    await vi.advanceTimersByTimeAsync(200);
    expect(kernel.traits.shown).toBe("t2");
  });
});

describe("decisions", () => {
  it("are answered", async () => {
    const done = view.send({ action: "step" });
    expect([...view.sending.value]).toEqual(["step"]);
    kernel.done();
    expect(await done).toEqual({});
    expect([...view.sending.value]).toEqual([]);
  });

  it("that are refused become a sentence, and never reject", async () => {
    const done = view.send({ action: "fork", turn: "t1" });
    kernel.done("That turn is still running. Wait for it.");
    expect(await done).toEqual({ error: "That turn is still running. Wait for it." });
    expect(view.notice.value).toEqual({ text: "That turn is still running. Wait for it.", tone: "error" });
  });

  it("clicked twice are sent once", async () => {
    const first = view.send({ action: "step" });
    const second = view.send({ action: "step" });
    expect(kernel.sent).toHaveLength(1);
    kernel.done();
    await Promise.all([first, second]);
    view.send({ action: "step" });
    expect(kernel.sent).toHaveLength(2);
  });

  it("show a note that comes with them", async () => {
    const done = view.send({ action: "insert", text: "x" });
    kernel.reply({ kind: "done", id: kernel.sent[0]?.id, note: "It is the next input." });
    expect(await done).toEqual({ note: "It is the next input." });
    expect(view.notice.value).toEqual({ text: "It is the next input.", tone: "info" });
    view.send({ action: "step" });
    expect(view.notice.value).toBeNull();
  });
});

describe("questions", () => {
  it("are answered by the same id, in any order", async () => {
    const first = view.request({ ask: "artefact", name: "asm" });
    const second = view.request({ ask: "check", text: "sketch" });
    const [a, b] = kernel.sent;
    kernel.reply({ kind: "answer", id: b?.id, value: "second" });
    kernel.reply({ kind: "answer", id: a?.id, value: "first" });
    expect([await first, await second]).toEqual(["first", "second"]);
  });

  it("that cannot be answered reject with the kernel's sentence", async () => {
    const asked = view.request({ ask: "brief" });
    kernel.reply({ kind: "answer", id: kernel.sent[0]?.id, error: "No role is held by a person." });
    await expect(asked).rejects.toEqual(new Unanswered("No role is held by a person."));
  });

  it("are given up when the kernel stays busy", async () => {
    const asked = view.request({ ask: "brief" }, { timeout: 1000 });
    const failed = expect(asked).rejects.toThrow(LATE);
    await vi.advanceTimersByTimeAsync(1001);
    await failed;
  });

  it("can be taken back", async () => {
    const abort = new AbortController();
    const asked = view.request({ ask: "brief" }, { signal: abort.signal });
    const failed = expect(asked).rejects.toThrow("no longer");
    abort.abort(new Error("no longer"));
    await failed;
  });
});

describe("the kernel", () => {
  it("is busy when it has not answered in a second, and ready again when it has", async () => {
    view.send({ action: "run" });
    await vi.advanceTimersByTimeAsync(BUSY_MS - 10);
    expect(view.link.value).toBe("ready");
    await vi.advanceTimersByTimeAsync(20);
    expect(view.link.value).toBe("busy");
    kernel.done();
    await settled();
    expect(view.link.value).toBe("ready");
  });

  it("is gone when its heart stops; what was asked is given up with the remedy", async () => {
    const asked = view.request({ ask: "brief" }, { timeout: 1e9 });
    const failed = expect(asked).rejects.toThrow(GONE);
    await vi.advanceTimersByTimeAsync(GONE_MS + 3000);
    await failed;
    expect(view.link.value).toBe("gone");
    expect(view.notice.value?.text).toBe(GONE);
    expect((await view.send({ action: "step" })).error).toBe(GONE);
    expect(kernel.sent.filter(({ body }) => !("ping" in body))).toHaveLength(1);
  });

  it("is not gone where its beats are lost and it answers", async () => {
    kernel.pong = true;
    const asked = view.request({ ask: "brief" }, { timeout: 1e9 });
    for (let second = 0; second < 60; second += 1) {
      await vi.advanceTimersByTimeAsync(1000);
      expect(view.link.value).not.toBe("gone");
    }
    kernel.reply({ kind: "answer", id: kernel.sent[0]?.id, value: "late" });
    await expect(asked).resolves.toBe("late");
  });

  it("comes back when it answers, also without a beat", async () => {
    await vi.advanceTimersByTimeAsync(GONE_MS + 3000);
    expect(view.link.value).toBe("gone");
    kernel.pong = true;
    await vi.advanceTimersByTimeAsync(3000);
    expect([view.link.value, view.notice.value]).toEqual(["ready", null]);
  });

  it("that the front end says has ended is not asked", async () => {
    let ended = (_kernel: unknown, _status: string): void => {};
    const connect = (slot: typeof ended) => {
      ended = slot;
    };
    const far = new Kernel();
    Object.assign(far, {
      widget_manager: { kernel: { status: "idle", statusChanged: { connect, disconnect: () => {} } } },
    });
    const there = new View(far);
    ended(null, "dead");
    await vi.advanceTimersByTimeAsync(5 * GONE_MS);
    expect([there.link.value, far.sent]).toEqual(["gone", []]);
    there.dispose();
  });

  it("is not called busy while the front end says that it is idle", async () => {
    const line = { status: "idle" };
    const far = new Kernel();
    far.pong = true;
    Object.assign(far, { widget_manager: { kernel: line } });
    const there = new View(far);
    there.send({ action: "run" });
    await vi.advanceTimersByTimeAsync(BUSY_MS + 2500);
    expect(there.link.value).toBe("ready");
    line.status = "busy";
    await vi.advanceTimersByTimeAsync(2500);
    expect(there.link.value).toBe("busy");
    there.dispose();
  });

  it("is away, not gone, while the page does not reach the server", async () => {
    const far = new Kernel();
    Object.assign(far, { widget_manager: { kernel: { status: "idle", connectionStatus: "connecting" } } });
    const there = new View(far);
    await vi.advanceTimersByTimeAsync(GONE_MS + 3000);
    expect([there.link.value, there.away.value, there.notice.value?.text]).toEqual(["gone", true, AWAY]);
    far.put("beat", 7);
    expect([there.link.value, there.away.value, there.notice.value]).toEqual(["ready", false, null]);
    there.dispose();
  });

  it("comes back with its next beat", async () => {
    await vi.advanceTimersByTimeAsync(GONE_MS + 3000);
    kernel.put("beat", 7);
    expect([view.link.value, view.notice.value]).toEqual(["ready", null]);
  });

  it("lives while it beats", async () => {
    for (let beat = 0; beat < 10; beat += 1) {
      await vi.advanceTimersByTimeAsync(4000);
      kernel.put("beat", beat);
    }
    expect(view.link.value).toBe("ready");
  });

  it("is not taken for gone when the page has slept", async () => {
    vi.setSystemTime(Date.now() + 3_600_000);
    await vi.advanceTimersByTimeAsync(2100);
    expect(view.link.value).toBe("ready");
  });
});

it("leaves no listener behind", () => {
  const other = new Kernel();
  const short = new View(other);
  expect(other.listeners()).toBeGreaterThan(5);
  short.dispose();
  expect(other.listeners()).toBe(0);
});

/** JupyterLab's kernel connection as a widget sees it, whose subshell has ended. */
function lost(kernel: Kernel, mends: boolean) {
  const chosen: string[] = [];
  let whole = false;
  const send = kernel.send.bind(kernel);
  kernel.send = (message: unknown) => {
    if (!whole) return;
    send(message);
    const { id, body } = message as { id: string; body: object };
    if ("ping" in body) kernel.reply({ kind: "answer", id, value: true });
  };
  const connection = {
    status: "idle",
    supportsSubshells: true,
    get commsOverSubshells() {
      return "perCommTarget";
    },
    set commsOverSubshells(value: string) {
      chosen.push(value);
      whole = mends;
    },
  };
  Object.assign(kernel, { widget_manager: { kernel: connection } });
  return { chosen, connection };
}

describe("a line that is lost", () => {
  it("is repaired within three seconds, and the decision is sent again under its own id", async () => {
    const { chosen } = lost(kernel, true);
    const outcome = view.send({ action: "step" });
    await vi.advanceTimersByTimeAsync(2900);
    expect(chosen).toEqual(["disabled", "perCommTarget"]);
    const step = kernel.sent.find((message) => "action" in message.body);
    kernel.reply({ kind: "done", id: step?.id });
    expect(await outcome).toEqual({});
    expect(view.link.value).toBe("ready");
  });

  it("is told where it cannot be repaired and the kernel runs nothing", async () => {
    lost(kernel, false);
    const outcome = view.send({ action: "step" });
    await vi.advanceTimersByTimeAsync(5 * TRY_MS);
    expect((await outcome).error).toBe(LOST);
    expect(view.notice.value?.text).toBe(LOST);
  });

  it("is out of reach, and not lost, where the server answers nothing either: the machine sleeps", async () => {
    const { connection } = lost(kernel, false);
    Object.assign(connection, { serverSettings: { baseUrl: `${location.origin}/user/` } });
    const asked: string[] = [];
    let sleeps = true;
    vi.stubGlobal("fetch", (url: string) => {
      asked.push(url);
      return sleeps ? Promise.reject(new DOMException("late", "TimeoutError")) : Promise.resolve(new Response("{}"));
    });
    const outcome = view.send({ action: "step" });
    await vi.advanceTimersByTimeAsync(5 * TRY_MS);
    expect((await outcome).error).toBe(AWAY);
    expect([view.link.value, view.away.value, view.linkWords]).toEqual(["gone", true, "not connected"]);
    // it stays so however long it sleeps
    await vi.advanceTimersByTimeAsync(2 * GONE_MS);
    expect([view.notice.value?.text, view.linkWords]).toEqual([AWAY, "not connected"]);
    expect(new Set(asked)).toEqual(new Set([`${location.origin}/user/api`]));
    sleeps = false;
    kernel.put("beat", 9);
    expect([view.link.value, view.notice.value]).toEqual(["ready", null]);
    // a server that answers has a kernel that does not
    await vi.advanceTimersByTimeAsync(2 * GONE_MS);
    expect([view.notice.value?.text, view.linkWords]).toEqual([GONE, "kernel gone"]);
    vi.unstubAllGlobals();
  });

  it("is not suspected while the kernel answers, or where a running cell explains the wait", async () => {
    const { chosen, connection } = lost(kernel, false);
    connection.status = "busy";
    Object.assign(connection, { supportsSubshells: false });
    view.send({ action: "step" });
    await vi.advanceTimersByTimeAsync(4 * TRY_MS);
    expect(chosen).toEqual([]);
    expect(view.notice.value).toBeNull();
    expect(view.link.value).toBe("busy");
  });
});
