/** Long sessions for the check of smoothness: rows with forks as a search makes them, without randomness. */
const ROLES = ["designer", "coder", "verifier", "conductor"];
const NOTES = [
  "sketch right: Right on 6 small cases.",
  "source kernel.py, kernel.cpp",
  "failed at correct: edge-tile",
  "to coder: mask the load of x at N",
];

export function turns(count) {
  const rows = [];
  for (let number = 1; number <= count; number += 1) {
    const role = ROLES[(number - 1) % 4];
    // every 25th turn forks from one that lies a while back
    const parent = number === 1 ? null : number % 25 === 0 ? `t${number - (number % 20) - 1}` : `t${number - 1}`;
    rows.push({
      id: `t${number}`,
      number,
      parent,
      role,
      author: number % 11 === 0 ? "human" : number % 3 === 0 ? "model" : "rules",
      state: role === "verifier" ? (number % 5 ? "failed" : "passed") : "done",
      on_path: true,
      depth: 0,
      seconds: (number % 90) / 10,
      started: 1795269726 + number,
      note: NOTES[(number - 1) % 4],
      tokens: number % 3 === 0 ? 1200 + number : 0,
    });
  }
  return rows;
}

export function candidates(count) {
  return Array.from({ length: count }, (_, index) => ({
    turn: `t${index + 1}`,
    number: index + 1,
    author: index % 3 ? "rules" : "model",
    passed: index % 4 !== 0,
    on_path: index % 2 === 0,
    trust: "T2",
    time: { text: `${(1 + (index % 70) / 10).toFixed(2)} ms`, title: "median of 68 calls" },
    value: 3 - index / count,
    speedup: { text: `${(3 - index / count).toFixed(2)}x`, title: "times PyTorch eager" },
    note: `passed: ${(3 - index / count).toFixed(2)}x eager`,
  }));
}
