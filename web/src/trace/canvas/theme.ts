// SPDX-License-Identifier: Apache-2.0
// Colours of the timeline from CSS variables, so that canvas and page never differ.

export type Rgb = readonly [number, number, number];

export interface Theme {
  readonly lane: Rgb;
  readonly group: Rgb;
  readonly line: Rgb;
  readonly ink: Rgb;
  readonly faint: Rgb;
  readonly accent: Rgb;
  readonly density: Rgb;
  readonly font: string;
  /** Of the critical path, by kind of piece; the colours of the Verdict view. */
  readonly path: Readonly<Record<string, Rgb>>;
  /** Of idle time, by the family of its cause: the ground, and what is drawn on it. */
  readonly idle: Readonly<Record<string, readonly [ground: Rgb, ink: Rgb]>>;
}

const NAMES = ["lane", "group", "line", "ink", "faint", "accent", "density"] as const;

const PATH = { computing: "--compute", communication: "--comm", copy: "--copy", host: "--host", wait: "--unknown" };

const IDLE: Readonly<Record<string, readonly [string, string]>> = {
  dispatch: ["--host", "--host"], python: ["--python", "--host"], sync: ["--host-pale", "--host"], preparing: ["--host-pale", "--host"],
  wait: ["--comm-pale", "--comm"], communication: ["--comm", "--comm"], copy: ["--copy", "--copy"], computing: ["--compute", "--compute"], unknown: ["--unknown", "--unknown-dot"],
};

export function readTheme(root: HTMLElement): Theme {
  const style = getComputedStyle(root);
  const colours = Object.fromEntries(NAMES.map((name) => [name, rgb(style.getPropertyValue(`--trace-${name}`))]));
  const path = Object.fromEntries(Object.entries(PATH).map(([kind, name]) => [kind, rgb(style.getPropertyValue(name))]));
  const idle = Object.fromEntries(Object.entries(IDLE).map(([family, pair]) => [family, pair.map((name) => rgb(style.getPropertyValue(name)))])) as unknown as Theme["idle"];
  return { idle, ...(colours as Record<(typeof NAMES)[number], Rgb>), font: style.fontFamily || "sans-serif", path };
}

let probe: CanvasRenderingContext2D | null = null;

/** Any CSS colour as numbers: the canvas knows all notations. */
function rgb(text: string): Rgb {
  probe ??= new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true }) as unknown as CanvasRenderingContext2D;
  probe.fillStyle = "#888";
  probe.fillStyle = text.trim();
  probe.fillRect(0, 0, 1, 1);
  const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
  return [r ?? 128, g ?? 128, b ?? 128];
}

export const word = ([r, g, b]: Rgb): number => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
export const css = ([r, g, b]: Rgb, alpha = 1): string => `rgb(${r} ${g} ${b} / ${alpha})`;
export const blend = (a: Rgb, b: Rgb, share: number): Rgb => [0, 1, 2].map((i) => Math.round(a[i]! + (b[i]! - a[i]!) * share)) as unknown as Rgb;
