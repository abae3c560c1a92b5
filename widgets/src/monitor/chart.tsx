/** Speedup against evaluations or rounds, on a canvas: thousands of points cost one picture. */
import { useEffect, useRef, useState } from "preact/hooks";
import { Button } from "../ui";
import { type By, colourOf, nearest, type Picture, type Place, picture } from "./picture";
import { figureOf } from "./row";
import { lineage } from "./table";
import type { MonitorView } from "./view";

export function Chart({ view }: { view: MonitorView }) {
  const [by, setBy] = useState<By>("evaluation");
  const [over, setOver] = useState<Place | null>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const shown = useRef<Picture | null>(null);
  const head = view.state.head.value;
  const { rounds } = view.state.figures.value;
  const at = view.at.value;
  const changes = view.changes.value;
  const redraw = () => {
    const element = canvas.current;
    if (!element) return;
    const { clientWidth: width, clientHeight: height } = element;
    shown.current = picture({ rows: view.rows.values(), head, rounds, by, width, height });
    draw(element, shown.current);
    point();
  };
  // who is chosen lies on a separate picture: walking through the table does not draw all points again
  const point = () => {
    if (!above.current || !shown.current) return;
    const line = at === null ? [] : lineage(view.rows, at).map((row) => row.number);
    trace(above.current, shown.current, at, new Set(line));
  };
  const schedule = useFrame(redraw);
  const again = useFrame(point);
  // of the head only what is drawn: it counts candidates as well, which come more often than the chart is drawn
  useEffect(schedule, [changes, head.measure, head.lines.length, head.improvements.length, rounds, by]);
  useEffect(again, [at]);
  useEffect(() => {
    const size = new ResizeObserver(schedule);
    if (canvas.current) size.observe(canvas.current);
    // JupyterLab's theme is an attribute of the page; its style sheet arrives a moment later
    const theme = new MutationObserver(() => setTimeout(schedule, 300));
    theme.observe(document.body, { attributes: true });
    return () => {
      size.disconnect();
      theme.disconnect();
    };
  }, []);
  const find = (event: MouseEvent) => {
    const frame = canvas.current?.getBoundingClientRect();
    if (!frame || !shown.current) return null;
    return nearest(shown.current.places, event.clientX - frame.left, event.clientY - frame.top);
  };
  const row = over ? view.rows.get(over.number) : undefined;
  return (
    <section class="kl-mon-chart" aria-label="progress">
      <div class="kl-row kl-mon-chart-head">
        <span class="kl-dim">
          {head.measure === "speedup" ? "times as fast as eager" : "modelled ms, the faster up"}
        </span>
        <Legend view={view} />
        <span class="kl-grow" />
        <span class="kl-mon-by">
          {(["evaluation", "round"] as const).map((one) => (
            <Button local key={one} quiet pressed={by === one} action={`by-${one}`} onClick={() => setBy(one)}>
              by {one}
            </Button>
          ))}
        </span>
      </div>
      <div class="kl-mon-canvas">
        <canvas
          ref={canvas}
          role="img"
          aria-label={`${head.candidates} candidates by ${by}; the best is ${
            head.best === null ? "none yet" : `candidate ${head.best}, ${head.best_text}`
          }. The table below has them all.`}
          onMouseMove={(event) => setOver(find(event))}
          onMouseLeave={() => setOver(null)}
          onClick={(event) => {
            const place = find(event);
            if (place) view.choose(place.number);
          }}
        />
        {![...view.rows.values()].some((one) => one.value !== null) && (
          <p class="kl-mon-nothing kl-dim">Nothing is timed yet. Each candidate becomes a point when it is.</p>
        )}
        <div class="kl-mon-above" aria-hidden="true">
          <canvas ref={above} />
        </div>
        {over && row && (
          <div
            class="kl-mon-tip"
            style={{ left: `${over.x}px`, top: `${over.y}px` }}
            data-side={over.x > (shown.current?.right ?? 0) / 2 ? "left" : "right"}
          >
            <strong>{over.number}</strong> {figureOf(row, head.measure)}
            <br />
            {row.operator}, island {row.island}, round {row.round}
          </div>
        )}
      </div>
    </section>
  );
}

/** Calls `work` before the next frame; several calls until then are one. */
function useFrame(work: () => void): () => void {
  const latest = useRef(work);
  latest.current = work;
  const due = useRef(0);
  useEffect(() => () => cancelAnimationFrame(due.current), []);
  return () => {
    if (due.current) return;
    due.current = requestAnimationFrame(() => {
      due.current = 0;
      latest.current();
    });
  };
}

function Legend({ view }: { view: MonitorView }) {
  const { islands } = view.state.head.value;
  return (
    <span class="kl-mon-legend">
      islands
      {islands.slice(0, 8).map(({ number, frozen }) => (
        <span key={number} class="kl-mon-key">
          <svg class="kl-mon-mark" viewBox="-6 -6 12 12" aria-hidden="true">
            <path d={SHAPES[number % SHAPES.length]?.(4.5)} fill={colourOf(number)} />
          </svg>
          {number}
          {frozen && " (frozen)"}
        </span>
      ))}
      {islands.length > 8 && <span class="kl-dim">and {islands.length - 8} more</span>}
    </span>
  );
}

/** pixels that a level's name takes above its line */
const NAME = 14;
/** Islands by shape too, for who sees colours otherwise: circle, square, triangle, diamond. */
const SHAPES: ((r: number) => string)[] = [
  (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  (r) => `M${-r} ${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (r) => `M0 ${-1.2 * r}L${1.1 * r} ${0.9 * r}H${-1.1 * r}z`,
  (r) => `M0 ${-1.3 * r}L${1.2 * r} 0L0 ${1.3 * r}L${-1.2 * r} 0z`,
];

interface Paper {
  context: CanvasRenderingContext2D;
  ink: string;
  ground: string;
}

/** A canvas that is empty and as fine as the screen, and the colours of the theme. */
function paper(canvas: HTMLCanvasElement): Paper | null {
  const context = canvas.getContext("2d");
  if (!context) return null;
  const scale = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const style = getComputedStyle(canvas);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `11px ${style.fontFamily}`;
  return { context, ink: style.color, ground: style.getPropertyValue("--kl-bg") || "#fff" };
}

function draw(canvas: HTMLCanvasElement, scene: Picture): void {
  const found = paper(canvas);
  if (!found) return;
  const { context, ink, ground } = found;
  axes(context, scene, ink);
  for (const { y } of scene.lines) dashed(context, scene, y, ink);
  // one path for all points of an island: a call for each point would be many times slower
  const groups = new Map<string, { colour: string; paths: Path2D }>();
  for (const place of scene.places) {
    const big = place.state === "verified";
    const faint = place.state === "dropped" || place.state === "flagged" || place.state === "failed";
    const key = `${place.island} ${faint}`;
    const group = groups.get(key) ?? { colour: colourOf(place.island), paths: new Path2D() };
    groups.set(key, group);
    shape(group.paths, place.island, place.x, place.y, big ? 5 : 3);
  }
  for (const [key, { colour, paths }] of groups) {
    context.globalAlpha = key.endsWith("true") ? 0.35 : 0.85;
    context.fillStyle = colour;
    context.fill(paths);
  }
  whiskers(context, scene, ink);
  context.globalAlpha = 0.6;
  const feet = new Map<number, Path2D>();
  for (const place of scene.failed) {
    const path = feet.get(place.island) ?? new Path2D();
    feet.set(place.island, path);
    path.rect(place.x - 0.5, scene.foot - 5, 1, 5);
  }
  for (const [island, path] of feet) {
    context.fillStyle = colourOf(island);
    context.fill(path);
  }
  context.globalAlpha = 1;
  stroke(context, scene.steps, ink, 1.6);
  names(context, scene, ink, ground);
}

/** The intervals: of all, the verified ones' more clearly; of a few calls they are wide, and must not hide the points. */
function whiskers(context: CanvasRenderingContext2D, scene: Picture, ink: string): void {
  context.fillStyle = ink;
  for (const [alpha, verified] of [
    [0.45, true],
    [0.2, false],
  ] as const) {
    const lines = new Path2D();
    for (const { x, span, state } of scene.places)
      if (span && (state === "verified") === verified) lines.rect(x - 0.5, span[1], 1, Math.max(1, span[0] - span[1]));
    context.globalAlpha = alpha;
    context.fill(lines);
  }
}

/** The one that is chosen, and where it comes from. */
function trace(canvas: HTMLCanvasElement, scene: Picture, at: number | null, line: ReadonlySet<number>): void {
  const found = paper(canvas);
  if (!found) return;
  const { context, ink } = found;
  const ancestors = scene.places.filter((place) => line.has(place.number)).sort((a, b) => a.number - b.number);
  context.setLineDash([2, 3]);
  stroke(
    context,
    ancestors.map((place) => [place.x, place.y]),
    ink,
    1.2,
  );
  context.setLineDash([]);
  const chosen = scene.places.find((place) => place.number === at);
  if (chosen) {
    context.strokeStyle = ink;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(chosen.x, chosen.y, 8, 0, 2 * Math.PI);
    context.stroke();
  }
}

function axes(context: CanvasRenderingContext2D, scene: Picture, ink: string): void {
  context.fillStyle = ink;
  context.strokeStyle = ink;
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const { at, text } of scene.up) {
    context.globalAlpha = 0.14;
    context.fillRect(scene.left, Math.round(at), scene.right - scene.left, 1);
    context.globalAlpha = 0.8;
    context.fillText(text, scene.left - 6, at);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const { at, text } of scene.across) context.fillText(text, at, scene.foot + 5);
  context.globalAlpha = 0.4;
  context.fillRect(scene.left, scene.foot, scene.right - scene.left, 1);
  context.globalAlpha = 1;
}

/** A level to compare with. */
function dashed(context: CanvasRenderingContext2D, scene: Picture, y: number, ink: string): void {
  context.setLineDash([5, 4]);
  stroke(
    context,
    [
      [scene.left, y],
      [scene.right, y],
    ],
    ink,
    1,
  );
  context.setLineDash([]);
}

/** The levels' names, over the points: with an edge in the colour of the ground, so that they can be read. */
function names(context: CanvasRenderingContext2D, scene: Picture, ink: string, ground: string): void {
  context.textAlign = "left";
  context.lineJoin = "round";
  context.lineWidth = 4;
  context.strokeStyle = ground;
  context.fillStyle = ink;
  for (const { name, y } of scene.lines) {
    // a level at the upper edge has no room above
    const above = y > scene.top + NAME;
    context.textBaseline = above ? "bottom" : "top";
    context.strokeText(name, scene.left + 4, above ? y - 2 : y + 3);
    context.fillText(name, scene.left + 4, above ? y - 2 : y + 3);
  }
}

function stroke(context: CanvasRenderingContext2D, points: readonly [number, number][], ink: string, wide: number) {
  if (points.length < 2) return;
  context.strokeStyle = ink;
  context.lineWidth = wide;
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
  context.stroke();
}

function shape(path: Path2D, island: number, x: number, y: number, r: number): void {
  switch (island % 4) {
    case 0:
      path.moveTo(x + r, y);
      path.arc(x, y, r, 0, 2 * Math.PI);
      break;
    case 1:
      path.rect(x - r, y - r, 2 * r, 2 * r);
      break;
    case 2:
      path.moveTo(x, y - 1.2 * r);
      path.lineTo(x + 1.1 * r, y + 0.9 * r);
      path.lineTo(x - 1.1 * r, y + 0.9 * r);
      path.closePath();
      break;
    default:
      path.moveTo(x, y - 1.3 * r);
      path.lineTo(x + 1.2 * r, y);
      path.lineTo(x, y + 1.3 * r);
      path.lineTo(x - 1.2 * r, y);
      path.closePath();
  }
}
