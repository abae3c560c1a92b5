/** Scales and ticks for the pictures that are drawn here. */

/** A value's place between two pixels; on a logarithmic scale both ends must be above 0. */
export function toPixels(low: number, high: number, from: number, to: number, log = false): (value: number) => number {
  const of = log ? (value: number) => Math.log10(Math.max(value, 1e-300)) : (value: number) => value;
  const start = of(low);
  const length = of(high) - start;
  return (value) => {
    const share = length === 0 ? 0.5 : (of(value) - start) / length;
    return Math.round((from + share * (to - from)) * 100) / 100;
  };
}

/** Round values between low and high: 1, 2, 5 of each power of ten, at most about `most`. */
export function ticks(low: number, high: number, log = false, most = 6): number[] {
  if (!(high > low)) return [low];
  return log ? logTicks(low, high, most) : linearTicks(low, high, most);
}

function logTicks(low: number, high: number, most: number): number[] {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const inside = (digits: number[], stride = 1) => {
    const found: number[] = [];
    for (let power = first; power <= last; power += stride) {
      for (const digit of digits) found.push(Number(`${digit}e${power}`));
    }
    return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  };
  const choices = [inside([1, 2, 5]), inside([1, 3]), inside([1])];
  for (const choice of choices) if (choice.length <= most && choice.length > 1) return choice;
  const stride = Math.ceil((last - first) / most);
  return inside([1], Math.max(1, stride));
}

function linearTicks(low: number, high: number, most: number): number[] {
  const raw = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 5, 10].find((digit) => digit * power >= raw) ?? 10) * power;
  const found: number[] = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) {
    found.push(Number((at * step).toPrecision(12)));
  }
  return found;
}
