/**
 * The line over which a widget's messages reach its kernel.
 *
 * JupyterLab sends them to a subshell of the kernel, which answers while a cell runs. A subshell can end while a page
 * still sends to it (a second page of the same notebook is enough); what is sent then is lost without a word. Setting
 * `commsOverSubshells` of the kernel connection gives its widgets a new one.
 */

/** What of JupyterLab's kernel connection is used here. */
interface Kernel {
  status: string;
  connectionStatus?: string;
  supportsSubshells?: boolean;
  commsOverSubshells?: string;
  serverSettings?: { baseUrl?: string };
  statusChanged?: { connect(slot: Slot): void; disconnect(slot: Slot): void };
}

type Slot = (kernel: unknown, status: string) => void;

/** The server looks at a kernel every 3 s; it says so when one has ended, or is started again by a person. */
const ENDED = new Set(["restarting", "autorestarting", "terminating", "dead"]);

export interface Line {
  /** gives the widgets of this page another subshell; false where there are none */
  repair(): Promise<boolean>;
  /** does the kernel run nothing? */
  idle(): boolean;
  /** does the front end say that the page reaches the server? It may not know yet that the server sleeps. */
  connected(): boolean;
  /** does the server answer a plain request? true where it cannot be asked */
  reaches(): Promise<boolean>;
  /** calls when the kernel ends; what comes back stops that */
  onEnd(ended: () => void): () => void;
}

/** A server that runs answers its version in this time. */
const ANSWERS_MS = 1_500;

/** The old subshell is given up, and the new one there, after this long each. */
const WAIT_MS = 200;
const wait = () => new Promise((done) => setTimeout(done, WAIT_MS));

/** null in a front end that does not show its kernel connection. */
export function lineOf(model: object): Line | null {
  const kernel = (model as { widget_manager?: { kernel?: Kernel | null } }).widget_manager?.kernel;
  if (!kernel || typeof kernel.status !== "string") return null;
  return {
    idle: () => kernel.status === "idle",
    connected: () => navigator.onLine !== false && (kernel.connectionStatus ?? "connected") === "connected",
    reaches: async () => {
      const base = kernel.serverSettings?.baseUrl;
      if (!base?.startsWith(`${location.origin}/`)) return true;
      try {
        // any answer counts, one that asks for a password too
        await fetch(`${base}api`, { cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(ANSWERS_MS) });
        return true;
      } catch {
        return false;
      }
    },
    onEnd: (ended) => {
      const slot: Slot = (_, status) => {
        if (ENDED.has(status)) ended();
      };
      kernel.statusChanged?.connect(slot);
      return () => kernel.statusChanged?.disconnect(slot);
    },
    repair: async () => {
      const now = kernel.commsOverSubshells;
      if (!kernel.supportsSubshells || !now || now === "disabled") return false;
      kernel.commsOverSubshells = "disabled";
      // in one go the widgets would take the old one again
      await wait();
      kernel.commsOverSubshells = now;
      await wait();
      return true;
    },
  };
}
