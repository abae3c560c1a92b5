/** The class of a line of a unified diff. */
export function diffKind(line: string): string | undefined {
  if (line.startsWith("+++ ") || line.startsWith("--- ")) return "kl-diff-file";
  if (line.startsWith("@@")) return "kl-dim";
  if (line.startsWith("+")) return "kl-added";
  if (line.startsWith("-")) return "kl-removed";
  return undefined;
}
