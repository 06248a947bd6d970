// SPDX-License-Identifier: Apache-2.0
// Slices and counters as pixels: one scanline per row, copied down, drawn once per frame (docs/reference/viewer.md 6.3).

import { SHADES, type Source } from "../data/source";
import type { Theme } from "./theme";
import { blend, word } from "./theme";
import { BINS, type CounterTile, levelFor, type SliceTile } from "../data/tiles";

export interface Window {
  readonly from: number;
  readonly to: number;
}

/** Labels of a frame: x, width, y, height, name id, source number; flat, reused from frame to frame. */
export class Labels {
  readonly values = new Float64Array(6 * 8192);
  count = 0;

  add(x: number, width: number, y: number, height: number, name: number, source: number): void {
    if (this.count >= 8192) return;
    const at = this.count++ * 6;
    this.values[at] = x;
    this.values[at + 1] = width;
    this.values[at + 2] = y;
    this.values[at + 3] = height;
    this.values[at + 4] = name;
    this.values[at + 5] = source;
  }
}

export interface PaintCounts {
  rects: number;
  /** Slices that the picture stands for, merged ones counted each. */
  slices: number;
  /** Entries that stand for more than one slice. */
  merged: number;
  missing: number;
}

/** The pixels of the timeline, in device pixels. */
export class Painter {
  width = 0;
  height = 0;
  readonly labels = new Labels();
  readonly counts: PaintCounts = { rects: 0, slices: 0, merged: 0, missing: 0 };
  /** Slices shown of each row, for tests. */
  readonly byRow = new Map<string, number>();
  private words = new Uint32Array(0);
  private image: ImageData | null = null;
  private dense = new Uint8Array(0);
  private busy = new Float32Array(0);
  private anyDense = false;
  private theme!: Theme;
  private scale = 1;

  resize(width: number, height: number, scale: number): void {
    this.scale = scale;
    if (width === this.width && height === this.height) return;
    this.width = width;
    this.height = height;
    const bytes = new Uint8ClampedArray(width * height * 4);
    this.words = new Uint32Array(bytes.buffer);
    this.image = new ImageData(bytes, width, height);
    this.dense = new Uint8Array(width);
    this.busy = new Float32Array(width);
  }

  begin(theme: Theme): void {
    this.theme = theme;
    this.words.fill(word(theme.lane));
    this.labels.count = 0;
    this.counts.rects = this.counts.slices = this.counts.merged = this.counts.missing = 0;
    this.byRow.clear();
  }

  put(context: CanvasRenderingContext2D): void {
    if (this.image) context.putImageData(this.image, 0, 0);
  }

  /** A plain band, for headings of groups. */
  band(y: number, height: number, colour: number): void {
    const top = Math.max(0, y);
    const bottom = Math.min(this.height, y + height);
    if (bottom > top) this.words.fill(colour, top * this.width, bottom * this.width);
  }

  /** One row of slices. `clip` is the first line that may be painted. */
  row(source: Source, row: number, window: Window, y: number, height: number, clip: number, labels: boolean): void {
    const line = this.scanline(y, height, clip);
    if (line < 0) return;
    const place = source.place;
    const from = window.from - place;
    const to = window.to - place;
    const about = source.meta.rows[row];
    if (!about || about.first_ns >= to || about.last_ns < from) return;
    const inv = this.width / (to - from);
    const level = Math.min(source.meta.levels.max_level, levelFor(1 / inv));
    const width = BINS * 2 ** level;
    const first = Math.floor(Math.max(from, about.first_ns, 0) / width);
    const last = Math.floor(Math.min(to, about.last_ns) / width);
    this.dense.fill(0);
    this.anyDense = false;
    let shown = 0;
    for (let index = first; index <= last; index++) {
      const left = index * width;
      const right = left + width;
      const tile = source.slices.find(row, level, index);
      if (!source.slices.complete) {
        this.counts.missing++;
        // While zooming out the finer half-tiles are still there and sharper than anything coarser.
        const a = level > 0 ? source.slices.peek(row, level - 1, 2 * index) : undefined;
        const b = a && source.slices.peek(row, level - 1, 2 * index + 1);
        if (a && b) {
          shown += this.slices(source, a, line, y, height, from, to, left, left + width / 2, inv, index === first, labels);
          shown += this.slices(source, b, line, y, height, from, to, left + width / 2, right, inv, false, labels);
          continue;
        }
      }
      if (tile) shown += this.slices(source, tile, line, y, height, from, to, left, right, inv, index === first, labels);
    }
    this.copyDown(line, y, height, clip, this.anyDense);
    this.byRow.set(`${source.number}:${row}`, shown);
    this.counts.slices += shown;
  }

  /** First word of the row's first line that can be seen, -1 when none can. */
  private scanline(y: number, height: number, clip: number): number {
    const top = Math.max(y, clip);
    return top >= y + height || top >= this.height ? -1 : top * this.width;
  }

  private slices(
    source: Source, tile: SliceTile, line: number, y: number, height: number, from: number, to: number, left: number, right: number,
    inv: number, outermost: boolean, labels: boolean,
  ): number {
    const { start, dur, name, count, busy, n } = tile;
    const { words, dense } = this;
    const shades = source.shades;
    const gap = word(this.theme.lane);
    const low = Math.max(0, Math.floor((left - from) * inv));
    const high = Math.min(this.width, Math.ceil((right - from) * inv));
    const labelFrom = 40 * this.scale;
    let rects = 0;
    let shown = 0;
    let merged = 0;
    let end = low; // first pixel that is still free
    let lastDur = -1;
    let lastWide = false;
    for (let j = firstReaching(tile, Math.max(from, left)); j < n; j++) {
      const s = start[j]!;
      if (s >= to || s >= right) break;
      const d = dur[j]!;
      const e = s + d;
      if (s < from && e <= from) continue;
      if (outermost || s >= left) shown += count[j]!;
      const x0 = (s - from) * inv;
      const x1 = (e - from) * inv;
      let a = x0 < low ? low : Math.floor(x0);
      let b = x1 >= high ? high : Math.floor(x1);
      if (b <= a) b = a + 1;
      if (a >= high) break;
      const clustered = count[j]! > 1;
      if (clustered) merged++;
      if (a < end) {
        // The pixel is taken: several slices share it, the longest gives the colour.
        if (b <= end) {
          if (a === end - 1 && !lastWide) {
            dense[a] = 1;
            this.anyDense = true;
            if (d > lastDur) {
              words[line + a] = shades[name[j]! * SHADES + shade(clustered, busy[j]!)]!;
              lastDur = d;
            }
          }
          continue;
        }
        a = end;
      }
      const colour = shades[name[j]! * SHADES + shade(clustered, busy[j]!)]!;
      // Most are a pixel or two wide: a loop is faster than a call of fill.
      if (b - a > 24) words.fill(colour, line + a, line + b);
      else for (let x = line + a; x < line + b; x++) words[x] = colour;
      if (clustered) {
        this.anyDense = true;
        for (let x = a; x < b; x++) dense[x] = 1;
      }
      rects++;
      lastWide = b - a > 1;
      lastDur = d;
      end = b;
      // A free pixel at the end keeps neighbours of one name apart.
      if (b - a >= 6 && x1 < high) words[line + b - 1] = gap;
      if (labels && !clustered && x1 - x0 >= labelFrom && (outermost || s >= left)) {
        const x = Math.max(0, x0);
        const wide = Math.min(this.width, x1) - x;
        if (wide >= labelFrom) this.labels.add(x, wide, y, height, name[j]!, source.number);
      }
    }
    this.counts.rects += rects;
    this.counts.merged += merged;
    return shown;
  }

  /** The scanline on all lines of the row; the last lines carry the mark of pixels that stand for several slices. */
  private copyDown(line: number, y: number, height: number, clip: number, anyDense: boolean): void {
    const { words, width } = this;
    const top = Math.max(y, clip);
    const bottom = Math.min(this.height, y + height);
    const next = line + width;
    for (let to = top + 1; to < bottom; to++) words.copyWithin(to * width, line, next);
    if (!anyDense || height < 8 * this.scale) return;
    const mark = word(this.theme.density);
    const markTop = y + height - Math.round(2 * this.scale);
    if (markTop < top || markTop >= this.height) return;
    const at = markTop * width;
    for (let x = 0; x < width; x++) if (this.dense[x]) words[at + x] = mark;
    for (let to = markTop + 1; to < bottom; to++) words.copyWithin(to * width, at, at + width);
  }

  /** Share of each pixel that any of the rows covers: a folded process. */
  density(source: Source, rows: readonly number[], window: Window, y: number, height: number, clip: number): void {
    const line = this.scanline(y, height, clip);
    if (line < 0) return;
    this.busy.fill(0);
    for (const row of rows) this.addDensity(source, row, window);
    const { words, busy, width } = this;
    const back = this.theme.group;
    const ramp = Array.from({ length: 17 }, (_, i) => word(blend(back, this.theme.accent, i === 0 ? 0 : 0.25 + (0.6 * i) / 16)));
    for (let x = 0; x < width; x++) words[line + x] = ramp[busy[x]! <= 0 ? 0 : Math.max(1, Math.min(16, Math.round(busy[x]! * 16)))]!;
    this.copyDown(line, y, height, clip, false);
  }

  private addDensity(source: Source, row: number, window: Window): void {
    const about = source.meta.rows[row];
    const from = window.from - source.place;
    const to = window.to - source.place;
    if (!about || about.first_ns >= to || about.last_ns < from) return;
    const inv = this.width / (to - from);
    const level = Math.min(source.meta.levels.max_level, levelFor(1 / inv));
    const width = BINS * 2 ** level;
    const last = Math.floor(Math.min(to, about.last_ns) / width);
    for (let index = Math.floor(Math.max(from, about.first_ns, 0) / width); index <= last; index++) {
      const tile = source.slices.find(row, level, index);
      if (!source.slices.complete) this.counts.missing++;
      if (tile) addBusy(this.busy, tile, from, index * width, Math.min(to, (index + 1) * width), inv, this.width);
    }
  }

  /** A counter: the area under the step line, and the span from least to most in each pixel. */
  counter(source: Source, track: number, window: Window, y: number, height: number, clip: number, colour: Rgb3): void {
    const about = source.meta.tracks[track];
    if (!about || y + height <= clip || y >= this.height) return;
    const from = window.from - source.place;
    const to = window.to - source.place;
    const inv = this.width / (to - from);
    const level = Math.min(source.meta.levels.max_level, levelFor(1 / inv));
    const width = BINS * 2 ** level;
    const least = Math.min(0, about.min ?? 0);
    const most = Math.max(least + 1e-12, about.max ?? 1, 0);
    const plot: Plot = { y, height, clip, least, span: most - least, fill: word(blend(this.theme.lane, colour, 0.28)), ink: word(colour) };
    const last = Math.floor(Math.min(to, source.meta.length_ns) / width);
    for (let index = Math.floor(Math.max(from, 0) / width); index <= last; index++) {
      const tile = source.counters.find(track, level, index);
      if (!source.counters.complete) this.counts.missing++;
      if (tile) this.samples(tile, plot, from, Math.max(0, index * width), Math.min(to, (index + 1) * width, source.meta.length_ns), inv);
    }
  }

  private samples(tile: CounterTile, plot: Plot, from: number, left: number, right: number, inv: number): void {
    const { time, min, max, last, first, n } = tile;
    let j = Math.max(0, lowerBound(time, left) - 1);
    let before = NaN;
    for (; j < n; j++) {
      const at = time[j]!;
      if (at >= right) break;
      const until = j + 1 < n ? Math.min(right, time[j + 1]!) : right;
      if (until < left) continue;
      const a = Math.max(0, Math.floor((Math.max(at, left) - from) * inv));
      const b = Math.min(this.width, Math.max(a + 1, Math.floor((until - from) * inv)));
      if (a >= this.width) break;
      if (at >= left && a >= 0) {
        const low = Math.min(min[j]!, Number.isNaN(before) ? first[j]! : before);
        const high = Math.max(max[j]!, Number.isNaN(before) ? first[j]! : before);
        this.bar(plot, a, low, high);
        this.steady(plot, a + 1, b, last[j]!);
      } else this.steady(plot, a, b, last[j]!);
      before = last[j]!;
    }
  }

  private bar(plot: Plot, x: number, low: number, high: number): void {
    if (Number.isNaN(low) || Number.isNaN(high)) return;
    const top = lineOf(plot, high);
    const bottom = lineOf(plot, low);
    for (let y = Math.max(top, plot.clip); y < plot.y + plot.height && y < this.height; y++)
      this.words[y * this.width + x] = y <= bottom ? plot.ink : plot.fill;
  }

  private steady(plot: Plot, a: number, b: number, value: number): void {
    if (Number.isNaN(value) || b <= a) return;
    const top = lineOf(plot, value);
    for (let y = Math.max(top, plot.clip); y < plot.y + plot.height && y < this.height; y++)
      this.words.fill(y < top + this.scale ? plot.ink : plot.fill, y * this.width + a, y * this.width + b);
  }
}

type Rgb3 = readonly [number, number, number];

interface Plot {
  readonly y: number;
  readonly height: number;
  readonly clip: number;
  readonly least: number;
  readonly span: number;
  readonly fill: number;
  readonly ink: number;
}

const lineOf = (plot: Plot, value: number): number =>
  plot.y + Math.round((plot.height - 1) * (1 - Math.max(0, Math.min(1, (value - plot.least) / plot.span))));

const shade = (clustered: boolean, busy: number): number => (clustered ? (busy >= 0.75 ? 3 : busy >= 0.5 ? 2 : busy >= 0.25 ? 1 : 0) : 3);

export function lowerBound(values: Float64Array, wanted: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** First entry that can reach beyond `time`: slices of a row do not overlap, so only one before it can. */
export function firstReaching(tile: SliceTile, time: number): number {
  return Math.max(0, lowerBound(tile.start, time) - 1);
}

/** Adds the covered share of each pixel of [left, right). */
export function addBusy(
  busy: Float32Array, tile: SliceTile, from: number, left: number, right: number, inv: number, pixels: number,
): void {
  const { start, dur, busy: share, n } = tile;
  for (let j = firstReaching(tile, Math.max(from, left)); j < n; j++) {
    const s = start[j]!;
    if (s >= right) break;
    const x0 = (Math.max(s, left) - from) * inv;
    const x1 = (Math.min(s + dur[j]!, right) - from) * inv;
    if (x1 < 0) continue;
    const a = Math.max(0, Math.floor(x0));
    const b = Math.min(pixels - 1, Math.floor(x1));
    const part = share[j]!;
    if (a === b) busy[a] = Math.min(1, busy[a]! + Math.max(0.02, (x1 - x0) * part));
    else
      for (let x = a; x <= b; x++) {
        const covered = Math.min(x1, x + 1) - Math.max(x0, x);
        busy[x] = Math.min(1, busy[x]! + covered * part);
      }
  }
}
