// SPDX-License-Identifier: Apache-2.0
// Pictures of all ranks of a run: steps as a heat map, one step on the common clock, links, the pipeline. Lengths are CSS pixels.

export interface Heat {
  readonly value: string;
  readonly values: readonly string[];
  readonly group: string;
  readonly ranks: readonly number[];
  readonly steps: readonly number[];
  readonly rows: readonly (readonly (number | null)[])[];
  readonly bands: readonly { readonly name: string | number | null; readonly first: number; readonly count: number }[];
  readonly least: number | null;
  readonly median: number | null;
  readonly most: number | null;
}

export interface RankSpans {
  readonly rank: number;
  readonly worker: string | null;
  readonly span: string | null;
  readonly sigma_ns: number | null;
  readonly work: { readonly start: readonly number[]; readonly end: readonly number[]; readonly kind: readonly number[] };
  readonly calls: { readonly start: readonly number[]; readonly end: readonly number[]; readonly call: readonly (number | null)[] };
}

export interface Clocked {
  readonly length_ns: number;
  readonly kinds: readonly string[];
  readonly ranks: readonly RankSpans[];
  readonly all_ranks: readonly number[];
  readonly refused: readonly { readonly rank: number; readonly reason: string }[];
  readonly steps: readonly { readonly step: number; readonly from: number; readonly to: number }[];
}

export interface Links {
  readonly ranks: readonly number[];
  readonly links: readonly { readonly src: number; readonly dst: number; readonly transport: string; readonly bandwidth: number | null; readonly usual: number | null; readonly bytes?: number; readonly time_ms?: number; readonly slow: boolean }[];
}

export interface Pipeline {
  readonly step: number;
  readonly length_ns: number;
  readonly bubble: number | null;
  readonly idle: number | null;
  readonly ideal_bubble: number | null;
  readonly stages: readonly { readonly stage: number; readonly rank: number; readonly kind: readonly string[]; readonly start: readonly number[]; readonly end: readonly number[] }[];
}

export const TONES = 5;
/** The page's name of the colour of a kind of work. */
const OF_KIND: Readonly<Record<string, string>> = {
  compute: "--compute", wait: "--comm-pale", copy: "--copy", other: "--unknown", forward: "--compute", backward: "--compute", both: "--compute", send: "--comm", recv: "--comm",
  bubble: "--comm-pale",
};

export type Ink = (name: string) => string;

/** Colours of the page as they are now. */
export function inkOf(element: Element): Ink {
  const style = getComputedStyle(element);
  return (name) => style.getPropertyValue(name).trim() || "#888";
}

/** A canvas of the given size, sharp on any screen, empty. */
export function sheet(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const scale = Math.min(2, window.devicePixelRatio || 1);
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d")!;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}

/** The tone of a value: 0 is what is usual, or the least; the last is the most. */
export function toneOf(value: number, heat: Heat): number {
  const low = heat.value === "excess" ? 0 : (heat.least ?? 0);
  const most = heat.most ?? 0;
  if (most <= low || value <= low) return 0;
  return Math.min(TONES - 1, Math.floor(((value - low) / (most - low)) * TONES));
}

/** Where a tone begins, in the unit of the heat map. */
export function toneEdge(heat: Heat, tone: number): number {
  const low = heat.value === "excess" ? 0 : (heat.least ?? 0);
  return low + ((Math.max(low, heat.most ?? 0) - low) * tone) / TONES;
}

/** One cell per rank and step; of more ranks than lines a line shows the most of its ranks. */
export function drawHeat(canvas: HTMLCanvasElement, heat: Heat, width: number, height: number, chosen: number | null): void {
  const context = sheet(canvas, width, height);
  const ink = inkOf(canvas);
  const tones = Array.from({ length: TONES }, (_, i) => ink(`--heat-${i}`));
  const lines = Math.min(heat.rows.length, Math.floor(height));
  const [wide, tall] = [width / Math.max(1, heat.steps.length), height / Math.max(1, lines)];
  const gap = tall >= 8 && wide >= 8 ? 1 : 0;
  for (let line = 0; line < lines; line++) {
    const first = Math.floor((line * heat.rows.length) / lines);
    const last = Math.max(first + 1, Math.floor(((line + 1) * heat.rows.length) / lines));
    for (let at = 0; at < heat.steps.length; at++) {
      let most: number | null = null;
      for (let row = first; row < last; row++) {
        const value = heat.rows[row]![at];
        if (value !== null && value !== undefined && (most === null || value > most)) most = value;
      }
      if (most === null) continue;
      context.fillStyle = tones[toneOf(most, heat)]!;
      context.fillRect(at * wide, line * tall, wide - gap, Math.max(0.5, tall - gap));
    }
  }
  const column = chosen === null ? -1 : heat.steps.indexOf(chosen);
  if (column < 0) return;
  context.strokeStyle = ink("--accent");
  context.lineWidth = 2;
  context.strokeRect(column * wide + 0.5, 1, Math.max(2, wide - 1), height - 2);
}

export function colourOfKind(kind: string, ink: Ink): string {
  return ink(OF_KIND[kind] ?? "--host");
}

/** Ranks below each other on the common clock; calls are lines at the lower edge of their row. */
export function drawRanks(canvas: HTMLCanvasElement, data: Clocked, order: readonly number[], width: number, height: number, window: readonly [number, number]): void {
  const context = sheet(canvas, width, height);
  const ink = inkOf(canvas);
  const colours = data.kinds.map((kind) => colourOfKind(kind, ink));
  const tall = height / Math.max(1, order.length);
  const x = (time: number): number => ((time - window[0]) / Math.max(1, window[1] - window[0])) * width;
  const byRank = new Map(data.ranks.map((row) => [row.rank, row]));
  order.forEach((rank, line) => {
    const row = byRank.get(rank);
    const y = line * tall;
    if (!row) {
      context.fillStyle = ink("--sunken");
      context.fillRect(0, y, width, Math.max(0.5, tall - (tall > 5 ? 1 : 0)));
      return;
    }
    const high = Math.max(0.5, tall - (tall > 5 ? 1 : 0));
    const { start, end, kind } = row.work;
    for (let i = 0; i < start.length; i++) {
      const a = x(start[i]!);
      const b = x(end[i]!);
      if (b < 0 || a > width) continue;
      context.fillStyle = colours[kind[i]!]!;
      context.fillRect(Math.max(0, a), y, Math.max(0.5, Math.min(width, b) - Math.max(0, a)), high);
    }
    if (tall < 8) return;
    context.fillStyle = ink("--comm");
    for (let i = 0; i < row.calls.start.length; i++) {
      const a = x(row.calls.start[i]!);
      const b = x(row.calls.end[i]!);
      if (b >= 0 && a <= width) context.fillRect(Math.max(0, a), y + high - 2, Math.max(0.5, Math.min(width, b) - Math.max(0, a)), 2);
    }
  });
}

const SCALE = 30; // px for the numbers of ranks beside a large matrix

/** Links as cells; a large one has the numbers of ranks at its edges. */
export function drawLinks(canvas: HTMLCanvasElement, data: Links, side: number, measure: "bandwidth" | "bytes" | "time_ms" = "bandwidth", numbered = false): void {
  const edge = numbered ? SCALE : 0;
  const context = sheet(canvas, side, side);
  const ink = inkOf(canvas);
  const room = side - edge;
  context.fillStyle = ink("--sunken");
  context.fillRect(edge, edge, room, room);
  const place = new Map(data.ranks.map((rank, at) => [rank, at]));
  const cell = room / Math.max(1, data.ranks.length);
  const at = (rank: number): number => edge + (place.get(rank) ?? 0) * cell;
  const most = Math.max(...data.links.map((link) => link[measure] ?? 0), 1e-9);
  for (const link of data.links) {
    context.fillStyle = ink(`--heat-${Math.min(TONES - 1, 1 + Math.floor(((link[measure] ?? 0) / most) * (TONES - 1)))}`);
    context.fillRect(at(link.dst), at(link.src), Math.max(1, cell - (cell > 6 ? 1 : 0)), Math.max(1, cell - (cell > 6 ? 1 : 0)));
  }
  context.strokeStyle = ink("--comm");
  context.lineWidth = 2;
  for (const link of data.links.filter((one) => one.slow)) context.strokeRect(at(link.dst) - 2, at(link.src) - 2, cell + 4, cell + 4);
  if (!numbered) return;
  const every = Math.max(1, Math.ceil(22 / cell));
  context.fillStyle = ink("--muted");
  context.font = "10.5px system-ui, sans-serif";
  context.textBaseline = "middle";
  data.ranks.forEach((rank, line) => {
    if (line % every) return;
    context.textAlign = "right";
    context.fillText(String(rank), edge - 5, edge + (line + 0.5) * cell);
    context.textAlign = "center";
    context.fillText(String(rank), edge + (line + 0.5) * cell, edge - 9);
  });
}

/** Source and destination of the cell at a place of a large matrix. */
export function matrixCell(data: Links, side: number, x: number, y: number): readonly [src: number, dst: number] | null {
  const cell = (side - SCALE) / Math.max(1, data.ranks.length);
  const [src, dst] = [data.ranks[Math.floor((y - SCALE) / cell)], data.ranks[Math.floor((x - SCALE) / cell)]];
  return x < SCALE || y < SCALE || src === undefined || dst === undefined ? null : [src, dst];
}

export function drawPipeline(canvas: HTMLCanvasElement, data: Pipeline, width: number, tall: number): void {
  const context = sheet(canvas, width, tall * data.stages.length);
  const ink = inkOf(canvas);
  data.stages.forEach((stage, line) => {
    stage.kind.forEach((kind, i) => {
      const a = (stage.start[i]! / data.length_ns) * width;
      const b = (stage.end[i]! / data.length_ns) * width;
      context.fillStyle = colourOfKind(kind, ink);
      // Backward passes are lower, so that they are told apart without a colour.
      const low = kind === "backward" ? tall * 0.35 : 0;
      context.fillRect(a, line * tall + low, Math.max(0.5, b - a - 0.4), tall - 3 - low);
    });
  });
}
