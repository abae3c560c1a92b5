/** A comparison as a file: rows for a spreadsheet, or a picture for a message. */
import type { CandidateComparison } from "../protocol";

export interface Compared {
  name: string;
  a: string;
  b: string;
  found: CandidateComparison;
}

/** Comma-separated values: a line of names, then a line a figure, and the sentence at the end. */
export function toCsv({ a, b, found }: Compared): string {
  const lines = [["", a, b], ...found.rows.map((row) => [row.name, row.a, row.b]), ["difference", found.verdict, ""]];
  return `${lines.map((line) => line.map(quoted).join(",")).join("\n")}\n`;
}

const quoted = (cell: string): string => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);

const LINE = 22;
const EDGE = 16;
const NAMES = 190;

/** The same as a picture in the colours of `like`; null where the browser draws none. */
export async function toPicture({ name, a, b, found }: Compared, like: Element): Promise<Blob | null> {
  const style = getComputedStyle(like);
  const board = like.closest(".kl") ?? like;
  const lines = [["", a, b], ...found.rows.map((row) => [row.name, row.a, row.b])];
  const canvas = document.createElement("canvas");
  const pen = canvas.getContext("2d");
  if (!pen) return null;
  const font = `13px ${style.fontFamily}`;
  pen.font = font;
  const columns = [1, 2].map((at) => Math.max(...lines.map((line) => pen.measureText(line[at] ?? "").width)) + 24);
  const words = `${name}: ${found.verdict}`;
  const width = Math.max(NAMES + (columns[0] ?? 0) + (columns[1] ?? 0), pen.measureText(words).width * 1.1) + 2 * EDGE;
  const height = (lines.length + 2) * LINE + 2 * EDGE;
  const scale = 2;
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  pen.scale(scale, scale);
  pen.fillStyle = getComputedStyle(board).backgroundColor;
  pen.fillRect(0, 0, width, height);
  pen.fillStyle = style.color;
  pen.textBaseline = "middle";
  pen.font = `bold ${font}`;
  pen.fillText(words, EDGE, EDGE + LINE / 2);
  for (const [row, line] of lines.entries()) {
    const y = EDGE + (row + 2) * LINE;
    pen.font = row === 0 ? `bold ${font}` : font;
    for (const [at, cell] of line.entries()) {
      pen.fillText(cell, EDGE + (at === 0 ? 0 : at === 1 ? NAMES : NAMES + (columns[0] ?? 0)), y);
    }
  }
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
