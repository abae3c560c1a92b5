import { LongText } from "../monitor/text";

/** A unified diff, its lines coloured. */
export function Difference({ text, label }: { text: string; label: string }) {
  if (!text) return <p class="kl-dim">Their texts are the same.</p>;
  return (
    <LongText class="kl-diff" label={label}>
      {text.split("\n").map((line, index) => (
        <div key={index} class={diffKind(line)}>
          {line || " "}
        </div>
      ))}
    </LongText>
  );
}

/** The class of a line of a unified diff. */
export function diffKind(line: string): string | undefined {
  if (line.startsWith("+++ ") || line.startsWith("--- ")) return "kl-diff-file";
  if (line.startsWith("@@")) return "kl-dim";
  if (line.startsWith("+")) return "kl-added";
  if (line.startsWith("-")) return "kl-removed";
  return undefined;
}
