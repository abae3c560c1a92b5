/**
 * kernellab's commands in JupyterLab's palette: each puts a cell below the active one, and runs it where nothing in it
 * is to be filled in. A view whose kernel has ended is replaced by what the notebook keeps of it, and where JupyterLab
 * shows no view because this page does not trust the cell (another person ran it), a button shows it.
 *
 * JupyterLab loads a prebuilt extension as a container of webpack's module federation: `init` is given the modules that
 * it shares, `get` gives ours. Written by hand, it needs no build; of JupyterLab only two tokens are used.
 */
(() => {
  const CATEGORY = "kernellab";
  const TASK = `import torch
from kernellab import Dim

def reference(x):
    return torch.softmax(x, dim=-1)

M, N = Dim("M", 1, 16384), Dim("N", 64, 8192)
def inputs(M=4096, N=2048):
    return torch.randn(M, N)`;
  /** what a command is called, the cell that it makes, and whether that is run at once */
  const COMMANDS = [
    ["load", "Load kernellab in this notebook", "%load_ext kernellab", true],
    ["design", "Design a kernel: a cell for the operator", `%%kernel_design softmax\n${TASK}`, false],
    ["verify", "Verify a kernel of your own: a cell for it", "%%kernel_verify softmax\ndef kernel(x):\n    ...", false],
    ["evolve", "Search for a faster kernel: a cell for the task", `%%kernel_evolve softmax\n${TASK}`, false],
    ["show", "Show the session", "%kernel_show", true],
    ["step", "Take one turn", "%kernel_step", true],
    ["run", "Run until something stops it", "%kernel_run", true],
    ["pause", "Pause after the turn that runs", "%kernel_pause", true],
    ["stop", "Stop the session", "%kernel_stop", true],
    ["explain", "Explain the verdict", "%kernel_explain verdict", true],
    ["slow", "Why is the kernel slow?", "%kernel_explain speed", true],
    ["lens", "What the compiler made of the kernel", "%kernel_lens", true],
    ["doctor", "What this machine can do", "%kernel_doctor", true],
    ["help", "All magics, a line each", "%kernel_help", true],
  ];

  let shared;

  async function module(name) {
    const versions = Object.values(shared[name] ?? {});
    if (versions.length === 0) throw new Error(`kernellab: JupyterLab does not share ${name}.`);
    return (await versions[0].get())();
  }

  /** what the widget manager leaves of a view whose model no kernel has: its class, and a sentence without a widget */
  const DEAD = ".jp-OutputArea-output.jupyter-widgets";
  const ENDED = "The kernel of this view has ended. Run the cell again to continue from the journal.";

  /** what stands for a view in a page that does not trust the cell */
  const TEXT = ".jp-OutputArea-output[data-mime-type='text/html']:not(:has(.kernellab-untrusted))";
  const UNTRUSTED = "Not shown, because this page does not trust the cell: another person ran it. ";
  const VIEW = "application/vnd.jupyter.widget-view+json";

  /** Watches a notebook for such outputs of ours; those of others stay as they are. */
  function watch(panel) {
    let due = false;
    const look = () => {
      due = false;
      for (const node of panel.node.querySelectorAll(DEAD)) {
        if (node.childElementCount === 0) showRecorded(panel, node);
      }
      if (!panel.sessionContext.session?.kernel) return;
      for (const node of panel.node.querySelectorAll(TEXT)) offerView(panel, node);
    };
    const seen = new MutationObserver(() => {
      if (!due) requestAnimationFrame(look);
      due = true;
    });
    seen.observe(panel.node, { subtree: true, childList: true, attributeFilter: ["class"] });
    panel.disposed.connect(() => seen.disconnect());
    look();
  }

  /** the cell, and in it the widget and the output of ours, that `node` shows; null of another's */
  function ours(panel, node) {
    for (const cell of panel.content.widgets) {
      const { outputArea } = cell;
      const at = outputArea ? outputArea.widgets.findIndex((one) => one.node.contains(node)) : -1;
      const output = at < 0 ? null : outputArea.model.get(at);
      if (output) return output.metadata.kernellab ? { cell, output, shown: outputArea.widgets[at] } : null;
    }
    return null;
  }

  /**
   * Shows this one view on the person's word. To trust the cell would write all of its outputs into the shared notebook
   * again, and JupyterLab 4.6 mixes them up in the others' pages.
   */
  function offerView(panel, node) {
    const found = ours(panel, node);
    if (!found || found.cell.model.trusted) return;
    // a view of this page's kernel alone: a notebook can bring models, and programs, of its author
    if (!panel.sessionContext.session?.kernel?.hasComm(found.output.data[VIEW]?.model_id)) return;
    const said = document.createElement("p");
    said.className = "kernellab-untrusted";
    const button = document.createElement("button");
    button.className = "jp-mod-styled jp-mod-accept";
    button.textContent = "Trust and show it";
    button.addEventListener("click", () => {
      const view = panel.content.rendermime.createRenderer(VIEW);
      view.addClass("jp-OutputArea-output");
      for (const old of [...found.shown.widgets]) if (old.node.contains(node)) old.dispose();
      found.shown.addWidget(view);
      view.renderModel(found.output);
    });
    said.append(UNTRUSTED, button);
    node.append(said);
  }

  function showRecorded(panel, node) {
    const found = ours(panel, node);
    if (!found) return;
    node.classList.remove("jupyter-widgets");
    if (!found.output.data["text/html"]) {
      // room for further views: without a kernel it holds none
      node.replaceChildren();
      return;
    }
    const said = document.createElement("p");
    said.className = "kernellab-ended";
    said.textContent = ENDED;
    const receipt = found.cell.outputArea.node.querySelector("details:has(> .kernellab-receipt)");
    if (receipt) {
      receipt.open = true;
      node.replaceChildren(said);
      return;
    }
    const html = panel.content.rendermime.createRenderer("text/html");
    html.renderModel(found.output).then(() => node.replaceChildren(said, html.node));
  }

  async function plugin() {
    const { ICommandPalette } = await module("@jupyterlab/apputils");
    const { INotebookTracker } = await module("@jupyterlab/notebook");
    return {
      id: "kernellab:commands",
      description: "Magics of kernellab as commands; views of kernels that have ended.",
      autoStart: true,
      requires: [INotebookTracker],
      optional: [ICommandPalette],
      activate: (app, notebooks, palette) => {
        notebooks.forEach(watch);
        notebooks.widgetAdded.connect((_, panel) => watch(panel));
        for (const [name, label, text, runs] of COMMANDS) {
          const command = `kernellab:${name}`;
          app.commands.addCommand(command, {
            label,
            isEnabled: () => notebooks.currentWidget !== null,
            execute: async () => {
              await app.commands.execute("notebook:insert-cell-below");
              notebooks.activeCell?.model.sharedModel.setSource(text);
              if (runs) await app.commands.execute("notebook:run-cell");
              else await app.commands.execute("notebook:enter-edit-mode");
            },
          });
          palette?.addItem({ command, category: CATEGORY });
        }
      },
    };
  }

  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB.kernellab = {
    init: (modules) => {
      shared = modules;
    },
    get: async () => {
      const found = await plugin();
      return () => ({ __esModule: true, default: found });
    },
  };
})();
