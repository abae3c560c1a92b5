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
  supportsSubshells?: boolean;
  commsOverSubshells?: string;
}

export interface Line {
  /** gives the widgets of this page another subshell; false where there are none */
  repair(): Promise<boolean>;
  /** does the kernel run nothing? */
  idle(): boolean;
}

/** The old subshell is given up, and the new one there, after this long each. */
const WAIT_MS = 200;
const wait = () => new Promise((done) => setTimeout(done, WAIT_MS));

/** null in a front end that does not show its kernel connection. */
export function lineOf(model: object): Line | null {
  const kernel = (model as { widget_manager?: { kernel?: Kernel | null } }).widget_manager?.kernel;
  if (!kernel || typeof kernel.status !== "string") return null;
  return {
    idle: () => kernel.status === "idle",
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
