/**
 * Which elements a sketch loads and stores: a slider goes through the steps of a small run, and the shade of an element
 * is how often the whole run touches it.
 */
import { useState } from "preact/hooks";
import { shownText } from "../editor/draft";
import { sketchEditorOf } from "../editor/sketch-editor";
import { plural } from "../format";
import type { TouchedTensor, Touches, TouchStep } from "../protocol";
import { Empty, Tip, useAnswer } from "../ui";
import type { View } from "../view";

/** px of the widest picture and of the highest, and of a cell */
const WIDE = 700;
const HIGH = 170;
const CELL = { least: 2, most: 12 };
/** so many touches are the darkest shade, or more where there are more */
const DARK = 4;
/** a row of elements of a tensor with one dimension */
const ROW = 64;

export function TouchesPanel({ view }: { view: View }) {
  const editor = sketchEditorOf(view);
  const draft = shownText(editor.drafts.desk.value);
  const text = draft || view.state.texts.value.sketch;
  // asked again when the kernel has read the task
  const answer = useAnswer<Touches>(text ? `${view.state.head.value.operator}\n${text}` : null, (signal) =>
    view.request({ ask: "touches", text }, { signal, timeout: 30000 }),
  );
  if (!text) return <Empty>There is no sketch yet.</Empty>;
  if (answer?.error) return <Empty>{answer.error}</Empty>;
  const value = answer?.value;
  if (!value) return <Empty>The sketch runs at a small size.</Empty>;
  if (value.reason) return <Empty>{value.reason}</Empty>;
  return <Picture key={text} view={view} found={value} />;
}

function Picture({ view, found }: { view: View; found: Touches }) {
  const [at, setAt] = useState(0);
  const step = found.steps[Math.min(at, found.steps.length - 1)];
  const more = found.total > found.steps.length ? ` (the first ${found.steps.length} of ${found.total})` : "";
  return (
    <div class="kl-touches">
      <p class="kl-dim">
        The interpreter's run at {found.sizes}: {plural(found.total, "step")}
        {more}. The stronger an element's shade, the more often it is touched.
      </p>
      <div class="kl-row">
        {found.bytes.map((one) => (
          <Tip key={one.title} class="kl-figure" text={one.text} title={one.title} />
        ))}
      </div>
      {step && (
        <label class="kl-touch-slider">
          <span>Step {at + 1}</span>
          <input
            type="range"
            min={0}
            max={found.steps.length - 1}
            value={at}
            aria-label="step of the run"
            aria-valuetext={`step ${at + 1}: ${wordsOf(step, found.tensors)}`}
            onInput={(event) => setAt(Number(event.currentTarget.value))}
          />
          <code>{step.at || "no loop"}</code>
        </label>
      )}
      {step && <Parts view={view} step={step} tensors={found.tensors} />}
      <div class="kl-touch-tensors">
        {found.tensors.map((tensor, number) => (
          <Tensor key={tensor.name} tensor={tensor} number={number} step={step} />
        ))}
      </div>
      <div class="kl-legend">
        <span>
          <i class="kl-swatch kl-swatch-load" /> loaded in this step
        </span>
        <span>
          <i class="kl-swatch kl-swatch-store" /> stored in this step
        </span>
        <span class="kl-dim">the last dimension runs across</span>
      </div>
    </div>
  );
}

function Parts({ view, step, tensors }: { view: View; step: TouchStep; tensors: TouchedTensor[] }) {
  return (
    <ul class="kl-touch-parts" aria-label="what this step does">
      {step.parts.map((part) => (
        <li key={`${part.line}:${part.tensor}:${part.write}`}>
          <button type="button" class="kl-link" onClick={() => view.open("sketch", { line: part.line })}>
            line {part.line}
          </button>{" "}
          {part.write ? "stores" : "loads"} {plural(countOf(part.ranges), "element")} of{" "}
          <code>{tensors[part.tensor]?.name}</code>
          {part.outside > 0 && <span class="kl-dim">, {part.outside} places past the edge</span>}
        </li>
      ))}
    </ul>
  );
}

function Tensor({ tensor, number, step }: { tensor: TouchedTensor; number: number; step: TouchStep | undefined }) {
  const { columns, rows, cell } = layoutOf(tensor);
  const [width, height] = [columns * cell, rows * cell];
  const mine = step?.parts.filter((part) => part.tensor === number) ?? [];
  return (
    <figure class="kl-touch">
      <figcaption>
        <code>
          {tensor.name}[{tensor.shape.join(", ")}]
        </code>{" "}
        <span class="kl-dim">
          {tensor.dtype} {tensor.role}: {reuseOf(tensor)}
        </span>
      </figcaption>
      <svg
        viewBox={`0 0 ${width} ${height}`}
        style={{ width: `min(100%, ${width}px)` }}
        role="img"
        aria-label={`${tensor.name}: ${reuseOf(tensor)}`}
      >
        <rect class="kl-touch-ground" width={width} height={height} />
        {heat(tensor).map(({ share, ranges }) => (
          <path
            key={share}
            class="kl-touch-heat"
            style={{ opacity: 0.12 + 0.55 * share }}
            d={pathOf(ranges, columns, cell)}
          />
        ))}
        {mine.map((part) => (
          <path
            key={`${part.line}:${part.write}`}
            class={part.write ? "kl-touch-store" : "kl-touch-load"}
            d={pathOf(part.ranges, columns, cell)}
          />
        ))}
      </svg>
    </figure>
  );
}

/** How many elements lie in a row, how many rows there are, and how large a cell may be. */
export function layoutOf(tensor: Pick<TouchedTensor, "shape">): { columns: number; rows: number; cell: number } {
  const size = tensor.shape.reduce((a, b) => a * b, 1);
  const last = tensor.shape.length > 1 ? (tensor.shape.at(-1) ?? 1) : Math.min(size, ROW);
  const columns = Math.max(1, last);
  const rows = Math.max(1, Math.ceil(size / columns));
  const cell = Math.min(CELL.most, Math.floor(WIDE / columns), Math.floor(HIGH / rows));
  return { columns, rows, cell: Math.max(CELL.least, cell) };
}

/** The elements of each count above 0 as ranges; `share` is the count's part of the largest one. */
export function heat(tensor: Pick<TouchedTensor, "reads" | "writes">): { share: number; ranges: number[][] }[] {
  const counts = tensor.reads.map((reads, at) => reads + (tensor.writes[at] ?? 0));
  const most = counts.reduce((a, b) => Math.max(a, b), DARK);
  const found = new Map<number, number[][]>();
  counts.forEach((count, at) => {
    if (count === 0) return;
    const ranges = found.get(count) ?? [];
    const last = ranges.at(-1);
    if (last && (last[0] ?? 0) + (last[1] ?? 0) === at) last[1] = (last[1] ?? 0) + 1;
    else ranges.push([at, 1]);
    found.set(count, ranges);
  });
  return [...found].map(([count, ranges]) => ({ share: count / most, ranges }));
}

/** Rectangles of the ranges, cut at the ends of rows. */
export function pathOf(ranges: number[][], columns: number, cell: number): string {
  const parts: string[] = [];
  for (const [first = 0, count = 0] of ranges) {
    for (let at = first; at < first + count; ) {
      const column = at % columns;
      const length = Math.min(columns - column, first + count - at);
      parts.push(`M${column * cell} ${Math.floor(at / columns) * cell}h${length * cell}v${cell}h${-length * cell}z`);
      at += length;
    }
  }
  return parts.join("");
}

const countOf = (ranges: number[][]): number => ranges.reduce((sum, [, count = 0]) => sum + count, 0);

/** "each element read twice; each element written once" */
export function reuseOf(tensor: Pick<TouchedTensor, "reads" | "writes">): string {
  const said = [often(tensor.reads, "read"), often(tensor.writes, "written")].filter(Boolean);
  return said.join("; ") || "never touched";
}

function often(counts: number[], word: string): string {
  const least = counts.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
  const most = counts.reduce((a, b) => Math.max(a, b), 0);
  if (most === 0) return "";
  return least === most ? `each element ${word} ${times(most)}` : `${word} ${times(least)} to ${times(most)}`;
}

const times = (count: number): string => ["never", "once", "twice"][count] ?? `${count} times`;

const wordsOf = (step: TouchStep, tensors: TouchedTensor[]): string =>
  [step.at, ...step.parts.map((part) => `${part.write ? "stores to" : "loads"} ${tensors[part.tensor]?.name}`)]
    .filter(Boolean)
    .join(", ");
