/** Level lines of a chart, from side to side, with their names on the left. */
export function Levels({
  at,
  y,
  left,
  right,
  name,
}: {
  at: readonly number[];
  y: (value: number) => number;
  left: number;
  right: number;
  name: (value: number) => string;
}) {
  return (
    <>
      {at.map((value) => (
        <g key={value} class="kl-tick">
          <path d={`M${left} ${y(value)}H${right}`} />
          <text x={left - 6} y={y(value) + 3.5} text-anchor="end">
            {name(value)}
          </text>
        </g>
      ))}
    </>
  );
}
