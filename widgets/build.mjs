/**
 * Bundles the workbench and the monitor of a search: each one minified ES module and one style sheet, with nothing to
 * fetch at run time. licenses.txt next to them holds the licence of each package in them.
 *
 *   node build.mjs [--out FOLDER] [--source HASH] [--watch] [--meta FILE]
 *
 * `--source` is written into the first line of the module; hatch_build.py reads it back to see whether a bundle still
 * fits its sources. A person's own build carries "dev", which never fits.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
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

/** Name, version and licence text of each package of which the bundles hold a line. */
function licenses(metafile) {
  const held = Object.values(metafile.outputs).flatMap((output) =>
    Object.entries(output.inputs).filter(([, { bytesInOutput }]) => bytesInOutput > 0),
  );
  const names = held.map(([path]) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]).filter(Boolean);
  return [...new Set(names)].sort().map(license).join("\n");
}

function license(name) {
  const folder = join(HERE, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name} ${version} (${license}) has no licence file.`);
  return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
}

function report(metafile) {
  for (const name of ["workbench.js", "workbench.css", "monitor.js", "monitor.css"]) {
    const bytes = readFileSync(join(out, name));
    const packed = (gzipSync(bytes, { level: 9 }).length / 1000).toFixed(1);
    console.log(`${name}  ${(bytes.length / 1000).toFixed(1)} kB, ${packed} kB gzipped`);
  }
  writeFileSync(join(out, "licenses.txt"), licenses(metafile));
  if (given.meta) writeFileSync(given.meta, JSON.stringify(metafile));
}

if (given.watch) {
  const context = await esbuild.context(options);
  await context.watch();
  console.log(`watching; the bundle goes to ${out}`);
} else {
  report((await esbuild.build(options)).metafile);
}
