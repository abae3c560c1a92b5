/** Numbers in words: short, aligned, with a unit; a number that is not there is a dash. */

export const NONE = "\u2013";

/** 0 -> "", 0.012 -> "12 ms", 3.21 -> "3.2 s", 75 -> "1 min 15 s" */
export function duration(seconds: number): string {
  if (!(seconds > 0)) return "";
  if (seconds < 0.9995) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
}

/** A guess, said no more exactly than it is: 41.3 -> "40 s", 190 -> "3 min" */
export function guess(seconds: number): string {
  const step = seconds < 10 ? 1 : 5;
  const near = Math.round(seconds / step) * step;
  if (near < 60) return `${near} s`;
  return seconds < 3570 ? `${Math.round(seconds / 60)} min` : duration(seconds);
}

/** 950 -> "950", 12_345 -> "12.3k", 2_500_000 -> "2.5M" */
export function count(value: number): string {
  if (!Number.isFinite(value)) return NONE;
  if (Math.abs(value) < 1000) return String(Math.round(value));
  if (Math.abs(value) < 999_950) return `${trim(value / 1000, 1)}k`;
  return `${trim(value / 1e6, 1)}M`;
}

const STEPS: [number, string][] = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** 3.2e12 -> "3.2 T"; the unit follows */
export function si(value: number): string {
  if (!Number.isFinite(value)) return NONE;
  const [step, sign] = STEPS.find(([at]) => Math.abs(value) >= at) ?? [1, ""];
  return `${three(value / step)} ${sign}`.trimEnd();
}

/** three significant digits without an exponent: 0.0123, 1.25, 98.7, 1230 */
export function three(value: number): string {
  if (!Number.isFinite(value)) return NONE;
  if (value === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return trim(value, Math.min(digits, 8));
}

/** 2.913 -> "2.91x" */
export const times = (value: number | null): string =>
  value === null || !Number.isFinite(value) ? NONE : `${value < 10 ? value.toFixed(2) : value.toFixed(1)}x`;

export const milliseconds = (value: number | null): string => (value === null ? NONE : `${three(value)} ms`);

export const percent = (share: number): string => `${Math.round(100 * share)}%`;

export const plural = (value: number, word: string): string => `${value} ${word}${value === 1 ? "" : "s"}`;

export const capital = (word: string): string => word.charAt(0).toUpperCase() + word.slice(1);

function trim(value: number, digits: number): string {
  const text = value.toFixed(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}
