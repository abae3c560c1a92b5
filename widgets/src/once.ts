const said = new Set<string>();

/** One line on the console, once a page. */
export function once(line: string): void {
  if (said.has(line)) return;
  said.add(line);
  console.info(line);
}
