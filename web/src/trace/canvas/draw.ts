// SPDX-License-Identifier: Apache-2.0
// Everything on the canvas besides slices: labels, marks, arrows, ruler, overview strip. Context units are CSS pixels.

import { fitted as fittedTo } from "../../fitted";
import type { Labels, Window } from "./paint";
import { length, ticks, whole } from "../numbers";
import type { Path } from "../data/model";
import type { Source } from "../data/source";
import { t } from "../words";
import { blend, css, type Theme } from "./theme";

type Context = CanvasRenderingContext2D;

export interface Mark {
  readonly from: number;
  /** null: a flag. */
  readonly to: number | null;
  readonly name: string;
  readonly colour: string;
}

export interface Arrow {
  readonly x0: number;
  readonly y0: number;
  readonly x1: number;
  readonly y1: number;
  readonly colour: string;
}

/** Width of a name in pixels, measured once. */
const widths = new Map<string, number>();
let widthFont = "";

function widthOf(context: Context, text: string): number {
  let width = widths.get(text);
  if (width === undefined) {
    if (widths.size > 20_000) widths.clear();
    widths.set(text, (width = context.measureText(text).width));
  }
  return width;
}

const fitted = (context: Context, text: string, room: number): string => fittedTo((one) => widthOf(context, one), text, room, 2);

export function drawLabels(context: Context, labels: Labels, sources: ReadonlyMap<number, Source>, theme: Theme, scale: number): void {
  const font = `11px ${theme.font}`;
  context.font = font;
  if (font !== widthFont) widths.clear();
  widthFont = font;
  context.textBaseline = "middle";
  context.textAlign = "left";
  const inks = ["#10151d", "#ffffff", css(theme.faint)];
  // By colour of ink: changing the style is what costs.
  for (let tone = 0; tone < inks.length; tone++) {
    context.fillStyle = inks[tone]!;
    for (let i = 0; i < labels.count; i++) {
      const at = i * 6;
      const source = sources.get(labels.values[at + 5]!);
      const name = labels.values[at + 4]!;
      if (!source || (source.lightText[name] ?? 0) !== tone) continue;
      const text = fitted(context, source.nameOf(name), labels.values[at + 1]! / scale - 7);
      if (text) context.fillText(text, labels.values[at]! / scale + 4, labels.values[at + 2]! / scale + labels.values[at + 3]! / scale / 2 + 0.5);
    }
  }
}

export function drawArrows(context: Context, arrows: readonly Arrow[], strong: boolean): void {
  context.lineWidth = strong ? 1.75 : 1;
  for (const { x0, y0, x1, y1, colour } of arrows) {
    context.strokeStyle = colour;
    context.fillStyle = colour;
    context.globalAlpha = strong ? 0.95 : 0.55;
    const bend = Math.max(12, Math.min(80, Math.abs(x1 - x0) / 2));
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x1 - 6, y1 - 3.5);
    context.lineTo(x1 - 6, y1 + 3.5);
    context.fill();
  }
  context.globalAlpha = 1;
}

/** The critical path in one row; pieces with room for it have their word. */
export function drawPath(context: Context, path: Path, box: { readonly y: number; readonly height: number; readonly width: number }, xOf: (time: number) => number, theme: Theme, word: (kind: string) => string): void {
  const { pieces } = path;
  if (!pieces) return;
  context.font = `11px ${theme.font}`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  let painted = -Infinity;
  for (let i = 0; i < pieces.start.length; i++) {
    const a = Math.max(-2, xOf(pieces.start[i]!));
    const b = Math.min(box.width + 2, xOf(pieces.end[i]!));
    if (b < 0 || a > box.width || b <= painted) continue;
    const kind = pieces.kind[i]!;
    const colour = theme.path[kind] ?? theme.faint;
    const wide = Math.max(0.75, b - Math.max(a, painted));
    context.fillStyle = css(colour);
    // What waits is thinner: it is not work.
    const inset = kind === "wait" ? box.height / 3 : 0;
    context.fillRect(Math.max(a, painted), box.y + inset, wide - (wide > 3 ? 0.75 : 0), box.height - 2 * inset);
    painted = Math.max(painted, b - 0.25);
    if (b - a < 34 || inset) continue;
    const [red, green, blue] = colour;
    context.fillStyle = 0.299 * red + 0.587 * green + 0.114 * blue < 140 ? "#ffffff" : "#10151d";
    const text = fitted(context, word(kind), b - a - 8);
    if (text) context.fillText(text, Math.max(a, 0) + 4, box.y + box.height / 2 + 0.5);
  }
}

const STRIPE = 7; // px from one stripe to the next

/** Idle time in the colour of its cause. Waiting is striped and what is not known is dotted, as in the Verdict view. */
export function drawIdle(context: Context, gaps: NonNullable<Path["gaps"]>, box: { readonly y: number; readonly height: number; readonly width: number }, xOf: (time: number) => number, theme: Theme): void {
  let painted = -Infinity;
  context.font = `11px ${theme.font}`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (let i = 0; i < gaps.start.length; i++) {
    const a = Math.max(-2, xOf(gaps.start[i]!), painted);
    const b = Math.min(box.width + 2, xOf(gaps.end[i]!));
    if (b < 0 || a > box.width || b <= painted) continue;
    const kind = gaps.kind[i]!;
    const [ground, ink] = theme.idle[kind] ?? theme.idle["unknown"]!;
    const wide = Math.max(1, b - a);
    context.fillStyle = css(ground);
    context.fillRect(a, box.y, wide - (wide > 3 ? 0.75 : 0), box.height);
    painted = b;
    if (wide < 6 || box.height < 6) continue;
    context.save();
    context.beginPath();
    context.rect(a, box.y, wide - 0.75, box.height);
    context.clip();
    context.strokeStyle = context.fillStyle = css(ink);
    context.lineWidth = 1.2;
    if (kind === "sync" || kind === "wait" || kind === "preparing") {
      const lean = kind === "sync" ? box.height : kind === "wait" ? -box.height : 0;
      context.beginPath();
      for (let x = Math.floor(a / STRIPE) * STRIPE - box.height; x < b + box.height; x += STRIPE) {
        context.moveTo(x, box.y);
        context.lineTo(x + lean, box.y + box.height);
      }
      context.stroke();
    } else if (kind === "unknown") {
      for (let x = Math.ceil(a / 5) * 5; x < b; x += 5) for (let y = box.y + 3; y < box.y + box.height; y += 5) context.fillRect(x, y, 1.2, 1.2);
    }
    context.restore();
    if (box.height < 12) continue;
    const shown = Math.max(a, 0);
    const text = fitted(context, length(gaps.end[i]! - gaps.start[i]!), b - shown - 14);
    if (!text || text.endsWith("…")) continue; // half a number is a wrong one
    // On a ground of its own, as in the Verdict view: it is read on every pattern and in both themes.
    context.fillStyle = css(theme.lane);
    context.fillRect(shown + 3, box.y + 2, widthOf(context, text) + 6, box.height - 4);
    context.fillStyle = css(theme.ink);
    context.fillText(text, shown + 6, box.y + box.height / 2 + 0.5);
  }
}

export interface RulerPicture {
  readonly window: Window;
  readonly width: number;
  readonly top: number;
  readonly height: number;
  readonly theme: Theme;
  readonly steps: readonly { readonly text: string; readonly from: number; readonly to: number }[];
  readonly marks: readonly Mark[];
  readonly range: Window | null;
  readonly cursor: number | null;
  readonly cursorText: string;
  /** The moment that the scale counts from. */
  readonly origin: number;
}

export function drawRuler(context: Context, picture: RulerPicture): void {
  const { window, width, top, height, theme } = picture;
  const perNs = width / (window.to - window.from);
  const x = (time: number): number => (time - window.from) * perNs;
  context.fillStyle = css(theme.group);
  context.fillRect(0, top, width, height);
  context.font = `11px ${theme.font}`;
  context.textBaseline = "middle";
  const { origin } = picture;
  const { step, first, format } = ticks(window.from - origin, window.to - origin, width / 110);
  context.strokeStyle = css(theme.line);
  context.lineWidth = 1;
  for (const { text, from, to } of picture.steps) {
    const a = Math.max(0, x(from));
    const b = Math.min(width, x(to));
    if (b < 0 || a > width || b - a < 1) continue;
    context.fillStyle = css(theme.accent, 0.14);
    context.fillRect(a, top + height - 16, b - a - 1, 15);
    context.fillStyle = css(theme.ink);
    const shown = fitted(context, text, b - a - 10);
    if (shown) context.fillText(shown, a + 5, top + height - 8);
  }
  context.fillStyle = css(theme.faint);
  context.beginPath();
  for (let time = first; time <= window.to - origin; time += step) {
    const at = Math.round(x(time + origin)) + 0.5;
    context.moveTo(at, top + 2);
    context.lineTo(at, top + height - 18);
    context.fillText(format(time), at + 4, top + 10);
  }
  context.stroke();
  if (picture.range) {
    context.fillStyle = css(theme.accent, 0.22);
    context.fillRect(x(picture.range.from), top, Math.max(1, x(picture.range.to) - x(picture.range.from)), height);
  }
  for (const mark of picture.marks) {
    const at = x(mark.from);
    context.fillStyle = mark.colour;
    if (mark.to === null) {
      context.beginPath();
      context.moveTo(at, top + height);
      context.lineTo(at, top + 3);
      context.lineTo(at + 9, top + 7);
      context.lineTo(at + 1.5, top + 11);
      context.lineTo(at + 1.5, top + height);
      context.fill();
    } else context.fillRect(at, top + height - 4, Math.max(2, x(mark.to) - at), 4);
    if (mark.name) context.fillText(mark.name, at + 11, top + 10);
  }
  if (picture.cursor !== null) {
    const at = x(picture.cursor);
    context.font = `600 11px ${theme.font}`;
    const wide = context.measureText(picture.cursorText).width + 10;
    const left = Math.min(width - wide, Math.max(0, at - wide / 2));
    context.fillStyle = css(theme.ink);
    context.fillRect(left, top + 1, wide, 17);
    context.fillStyle = css(theme.lane);
    context.fillText(picture.cursorText, left + 5, top + 10);
  }
}

export interface OverviewPicture {
  readonly whole: Window;
  readonly window: Window;
  readonly width: number;
  readonly height: number;
  readonly theme: Theme;
  /** Covered share by pixel, one line per process. */
  readonly lines: readonly Float32Array[];
  readonly hits: { readonly from: number; readonly to: number; readonly counts: readonly number[] } | null;
}

export function drawOverview(context: Context, picture: OverviewPicture): void {
  const { whole: all, window, width, height, theme, lines } = picture;
  context.fillStyle = css(theme.lane);
  context.fillRect(0, 0, width, height);
  const tall = Math.max(2, Math.min(12, (height - 6) / Math.max(1, lines.length)));
  const tones = Array.from({ length: 9 }, (_, i) => css(blend(theme.lane, theme.accent, 0.2 + (0.7 * i) / 8)));
  lines.forEach((line, i) => {
    const y = 3 + i * tall;
    if (y + tall > height) return;
    for (let x = 0; x < Math.min(width, line.length); ) {
      const tone = line[x]! <= 0 ? -1 : Math.min(8, Math.floor(line[x]! * 9));
      let end = x + 1;
      while (end < line.length && (line[end]! <= 0 ? -1 : Math.min(8, Math.floor(line[end]! * 9))) === tone) end++;
      if (tone >= 0) {
        context.fillStyle = tones[tone]!;
        context.fillRect(x, y, end - x, Math.max(1, tall - 1));
      }
      x = end;
    }
  });
  const perNs = width / (all.to - all.from);
  if (picture.hits) {
    const { from, to, counts } = picture.hits;
    const wide = ((to - from) / counts.length) * perNs;
    context.fillStyle = "#d9480f";
    counts.forEach((count, i) => {
      if (count) context.fillRect((from - all.from) * perNs + i * wide, height - 9, Math.max(1.5, wide), 7);
    });
  }
  const a = Math.max(0, (window.from - all.from) * perNs);
  const b = Math.min(width, (window.to - all.from) * perNs);
  context.fillStyle = css(theme.ink, 0.1);
  context.fillRect(0, 0, a, height);
  context.fillRect(b, 0, width - b, height);
  context.strokeStyle = css(theme.accent);
  context.lineWidth = 2;
  context.strokeRect(Math.min(width - 3, a) + 1, 1, Math.max(3, b - a - 2), height - 2);
}

export interface Tip {
  readonly x: number;
  readonly y: number;
  readonly lines: readonly string[];
}

export const mergedText = (count: number): string => t("{count} slices in this pixel; the longest:", { count: whole(count) });
