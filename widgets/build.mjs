/**
 * Bundles the workbench and the monitor of a search: each one minified ES module and one style sheet, with nothing to
 * fetch at run time.
 *
 *   node build.mjs [--out FOLDER] [--source HASH] [--watch] [--meta FILE]
 *
 * `--source` is written into the first line of the module; hatch_build.py reads it back to see whether a bundle still
 * fits its sources. A person's own build carries "dev", which never fits.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const { values: given } = parseArgs({
  options: {
    out: { type: "string", default: join(HERE, "../kernellab/notebook/static") },
    source: { type: "string", default: "dev" },
    meta: { type: "string" },
    watch: { type: "boolean", default: false },
  },
});
const out = resolve(given.out);

/** @type {import("esbuild").BuildOptions} */
const options = {
  absWorkingDir: HERE,
  entryPoints: { workbench: "src/workbench.tsx", monitor: "src/monitor/monitor.tsx" },
  outdir: out,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  metafile: true,
  logLevel: "warning",
  banner: { js: `// kernellab, source ${given.source}` },
};

function report(metafile) {
  for (const name of ["workbench.js", "workbench.css", "monitor.js", "monitor.css"]) {
    const bytes = readFileSync(join(out, name));
    const packed = (gzipSync(bytes, { level: 9 }).length / 1000).toFixed(1);
    console.log(`${name}  ${(bytes.length / 1000).toFixed(1)} kB, ${packed} kB gzipped`);
  }
  if (given.meta) writeFileSync(given.meta, JSON.stringify(metafile));
}

if (given.watch) {
  const context = await esbuild.context(options);
  await context.watch();
  console.log(`watching; the bundle goes to ${out}`);
} else {
  report((await esbuild.build(options)).metafile);
}
