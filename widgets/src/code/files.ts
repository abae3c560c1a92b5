/** The files of a candidate as tabs, what was changed in them, and what the compiler said about them. */

import type { Diagnostic, Texts, VerdictView } from "../protocol";

export type Files = Readonly<Record<string, string>>;

export interface Tab {
  /** "file:kernel.cpp", "artefact:ptx" */
  key: string;
  kind: "file" | "artefact";
  name: string;
  /** differs from the candidate before */
  changed: boolean;
}

/** The main file first, then the others by name, then the artefacts in the kernel's order. */
export function tabsOf(texts: Texts, files: readonly string[]): Tab[] {
  const main = files.filter((name) => name === texts.main_file);
  const others = files.filter((name) => name !== texts.main_file).sort();
  return [
    ...[...main, ...others].map((name): Tab => {
      const before = texts.files_before[name];
      return { key: `file:${name}`, kind: "file", name, changed: before !== undefined && before !== texts.files[name] };
    }),
    ...texts.artefacts.map((name): Tab => ({ key: `artefact:${name}`, kind: "artefact", name, changed: false })),
  ];
}

/** The tab that is shown: the one that was chosen while it exists, else the first. */
export function tabAt(tabs: readonly Tab[], chosen: string): Tab | null {
  return tabs.find((tab) => tab.key === chosen) ?? tabs[0] ?? null;
}

export function sameFiles(a: Files, b: Files): boolean {
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => a[name] === b[name]);
}

export function isFiles(value: unknown): value is Files {
  return typeof value === "object" && value !== null && Object.values(value).every((text) => typeof text === "string");
}

/** Only what the person changed goes to the kernel. */
export function changedFiles(text: Files, from: Files): Record<string, string> {
  return Object.fromEntries(Object.entries(text).filter(([name, content]) => from[name] !== content));
}

/** The file before the shown turn's own source; a file that is not listed there is unchanged. */
export function beforeOf(texts: Texts, name: string): string {
  return texts.files_before[name] ?? texts.files[name] ?? "";
}

/** The compiler's words about one file, as findings; about the source as a whole when `file` is null. */
export function compilerFindings(verdict: VerdictView | null, file: string | null): Diagnostic[] {
  return (verdict?.compiler ?? [])
    .filter((one) => (one.line === null || one.line < 1 ? file === null : file !== null && isSameFile(one.file, file)))
    .map((one) => ({
      line: one.line ?? 1,
      col: 1,
      end_line: null,
      end_col: null,
      code: "",
      rule: "",
      severity: severityIn(one.message),
      message: one.message,
      remedy: "",
      fix: null,
    }));
}

/** A compiler may give the path of the build folder; names of a source's files are unique. */
function isSameFile(said: string, file: string): boolean {
  return said === file || said.endsWith(`/${file}`) || said.endsWith(`\\${file}`);
}

function severityIn(message: string): Diagnostic["severity"] {
  if (/^\W*(warning)\b|\bwarning:/i.test(message)) return "warning";
  return /^\W*(note|remark)\b|\bnote:/i.test(message) ? "info" : "error";
}
