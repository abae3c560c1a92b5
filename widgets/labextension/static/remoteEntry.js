/**
 * kernellab's commands in JupyterLab's palette: each puts a cell below the active one, and runs it where nothing in it
 * is to be filled in. And a view whose kernel has ended is replaced by what the notebook keeps of it.
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

  /** Watches a notebook for such views of ours; those of others stay as they are. */
  function watch(panel) {
    const look = () => {
      for (const node of panel.node.querySelectorAll(DEAD)) {
        if (node.childElementCount === 0) showRecorded(panel, node);
      }
    };
    const seen = new MutationObserver(look);
    seen.observe(panel.node, { subtree: true, attributeFilter: ["class"] });
    panel.disposed.connect(() => seen.disconnect());
    look();
  }

  function showRecorded(panel, node) {
    for (const { outputArea } of panel.content.widgets) {
      const at = outputArea ? outputArea.widgets.findIndex((one) => one.node.contains(node)) : -1;
      if (at < 0) continue;
      const output = outputArea.model.get(at);
      if (!output.metadata.kernellab) return;
      node.classList.remove("jupyter-widgets");
      const said = document.createElement("p");
      said.className = "kernellab-ended";
      said.textContent = ENDED;
      const receipt = outputArea.node.querySelector("details:has(> .kernellab-receipt)");
      if (receipt) {
        receipt.open = true;
        node.replaceChildren(said);
        return;
      }
      const html = panel.content.rendermime.createRenderer("text/html");
      html.renderModel(output).then(() => node.replaceChildren(said, html.node));
      return;
    }
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
