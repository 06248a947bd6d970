// SPDX-License-Identifier: Apache-2.0
// The picture: lanes and time window in, canvases out; one draw per animation frame and only when something changed.

import { type Arrow, drawArrows, drawLabels, drawIdle, drawOverview, drawPath, drawRuler, type Mark } from "./draw";
import { arrange, type Choice, type Lane, lanesBetween, type Layout, trackKey } from "./layout";
import { length, rawUs } from "../numbers";
import { addBusy, Painter, type Window } from "./paint";
import { type Picked, pickSlice, rowAt } from "./pick";
import { Frames } from "./perf";
import { originOf, stepIn } from "./steps";
import type { Source } from "../data/source";
import { MANY_SOURCES, spread } from "../data/summary";
import { css, type Rgb, type Theme, word } from "./theme";
import { BINS, levelFor } from "../data/tiles";
import { Viewport } from "./viewport";
import { colourOf } from "../../colour";
import { t } from "../words";

export const OVERVIEW = 40;
export const RULER = 38;
const HIGHEST_SCALE = 2; // more pixels than eyes see, at four times the work
const PREFETCH_MS = 120;
const OVERVIEW_ROWS = 400;
const LABEL_ROW = 13; // lower rows have no room for words

/** The stretch that a reader marked; `tracks` null means all. */
export interface Range extends Window {
  readonly tracks: ReadonlySet<string> | null;
}

export interface Chosen {
  readonly source: Source;
  readonly id: number;
  readonly row: number;
  readonly track: number;
  readonly start: number;
  readonly dur: number;
}

/** One end of an arrow: source, track, row, time of the capture. */
export interface End {
  readonly source: Source;
  readonly track: number | null;
  readonly row: number | null;
  readonly time: number;
}

export interface Flow {
  readonly from: End;
  readonly to: End;
  readonly category: string;
}

export interface Scene {
  sources: Source[];
  choice: Choice;
  theme: Theme;
  selected: Chosen | null;
  reference: Chosen | null;
  range: Range | null;
  marks: Mark[];
  flows: readonly Flow[];
  selectedFlows: readonly Flow[];
  hits: { readonly from: number; readonly to: number; readonly counts: readonly number[] } | null;
}

export interface Surfaces {
  readonly scroll: HTMLElement;
  readonly space: HTMLElement;
  readonly body: HTMLCanvasElement;
  readonly top: HTMLCanvasElement;
}

/** The track of the time in which the device had nothing to run. */
const IDLE = "Free";

export class Timeline {
  readonly view = new Viewport();
  readonly painter = new Painter();
  readonly frames = new Frames();
  layout: Layout;
  /** Where the pointer is, in CSS pixels of the body; null outside. */
  pointer: { x: number; y: number } | null = null;
  hovered: Picked | null = null;
  /** Called in each frame before drawing with the seconds since the last; true = more to come. */
  onFrame: (seconds: number) => boolean = () => false;
  onDrawn: (complete: boolean) => void = () => undefined;
  /** Whether the cursor tells epoch time. */
  rawTime = false;
  /** Whether dragging marks an area; otherwise it moves the picture. */
  areas = false;
  width = 1;
  height = 1;
  private scale = 1;
  private readonly body: CanvasRenderingContext2D;
  private readonly top: CanvasRenderingContext2D;
  private dirty = true;
  private request = 0;
  private lastTime = 0;
  private prefetchTimer = 0;
  private overviewLines: Float32Array[] = [];
  private overviewReady = false;
  private overviewKey = "";
  private stepSeen: { readonly source: Source | undefined; readonly place: number; readonly from: number; readonly to: number; readonly step: number | null } | null = null;

  constructor(readonly surfaces: Surfaces, readonly scene: Scene) {
    this.body = surfaces.body.getContext("2d", { alpha: false })!;
    this.top = surfaces.top.getContext("2d", { alpha: false })!;
    this.layout = arrange(scene.sources, scene.choice);
    this.blank();
  }

  destroy(): void {
    cancelAnimationFrame(this.request);
    clearTimeout(this.prefetchTimer);
  }

  get nsPerPixel(): number {
    return this.view.length / this.width;
  }

  get scrollTop(): number {
    return this.surfaces.scroll.scrollTop;
  }

  xOf(time: number): number {
    return (time - this.view.from) / this.nsPerPixel;
  }

  timeAt(x: number): number {
    return this.view.from + x * this.nsPerPixel;
  }

  resize(newWidth: number, newHeight: number): void {
    const [width, height] = [Math.max(50, Math.floor(newWidth)), Math.max(50, Math.floor(newHeight))];
    const scale = Math.min(HIGHEST_SCALE, window.devicePixelRatio || 1);
    if (width === this.width && height === this.height && scale === this.scale) return;
    this.width = width;
    this.height = height;
    this.scale = scale;
    for (const [canvas, tall] of [[this.surfaces.body, this.height], [this.surfaces.top, OVERVIEW + RULER]] as const) {
      canvas.width = Math.round(this.width * this.scale);
      canvas.height = Math.round(tall * this.scale);
      canvas.style.width = `${this.width}px`;
      canvas.style.height = `${tall}px`;
    }
    this.overviewKey = "";
    this.relayout();
    // A resized canvas is empty; what follows is shown in this very frame.
    this.paint();
  }

  /** Lanes changed: folds, pins, captures. */
  relayout(): void {
    this.layout = arrange(this.scene.sources, this.scene.choice);
    this.surfaces.space.style.height = `${Math.max(0, this.layout.height + this.layout.pinnedHeight + 24 - this.height)}px`;
    this.draw();
  }

  draw(): void {
    this.dirty = true;
    if (!this.request) this.request = requestAnimationFrame(this.frame);
  }

  /** Where a lane begins in the body, scrolled. */
  laneTop(lane: Lane): number {
    return lane.pinned ? lane.y : lane.y + this.layout.pinnedHeight - this.scrollTop;
  }

  /**
   * Headings that stay at the top while their tracks are scrolled below them: the rank and the process in view. The next
   * heading of the same kind pushes them out.
   */
  stuck(): { readonly lane: Lane; readonly top: number }[] {
    const found: { lane: Lane; top: number }[] = [];
    let edge = this.layout.pinnedHeight;
    for (const kind of ["rank", "process"] as const) {
      const groups = this.layout.groups;
      const at = groups.findLastIndex((lane) => lane.kind === kind && this.laneTop(lane) < edge);
      const lane = groups[at];
      if (!lane || lane.folded || (found[0] && found[0].lane.source !== lane.source)) continue;
      const next = groups.find((one, i) => i > at && (one.kind === kind || one.kind === "rank"));
      const top = next ? Math.min(edge, this.laneTop(next) - lane.height) : edge;
      found.push({ lane, top });
      edge = Math.max(edge, top + lane.height);
    }
    return found;
  }

  /** How far pinned tracks and headings that stay cover the top; at most, wherever the tracks are scrolled to. */
  get covered(): number {
    const tall = (kind: Lane["kind"]): number => this.layout.groups.find((lane) => lane.kind === kind)?.height ?? 0;
    return this.layout.pinnedHeight + tall("rank") + tall("process");
  }

  /** The first capture's step that has most of the window; looked for once in each window. */
  get step(): number | null {
    const [source] = this.scene.sources;
    const place = source?.place ?? 0;
    const { from, to } = this.view;
    const seen = this.stepSeen;
    if (seen && seen.source === source && seen.place === place && seen.from === from && seen.to === to) return seen.step;
    const step = stepIn(this.view, source);
    this.stepSeen = { source, place, from, to, step };
    return step;
  }

  /** Where times count from, and the step that begins there; null where there are none. */
  get origin(): { readonly ns: number; readonly step: number | null } {
    return originOf(this.scene.sources[0], this.step);
  }

  /** A time as the ruler tells it. */
  timeText(ns: number): string {
    return length(Math.round(ns - this.origin.ns));
  }

  visible(): Lane[] {
    const top = this.scrollTop;
    const room = this.height - this.layout.pinnedHeight;
    return [...this.layout.pinned, ...lanesBetween(this.layout.lanes, top, top + Math.max(0, room))];
  }

  laneAt(y: number): Lane | null {
    for (const { lane, top } of this.stuck()) if (y >= Math.max(top, this.layout.pinnedHeight) && y < top + lane.height) return lane;
    for (const lane of this.visible()) {
      const top = this.laneTop(lane);
      if (y >= top && y < top + lane.height && (lane.pinned || y >= this.layout.pinnedHeight)) return lane;
    }
    return null;
  }

  pick(x: number, y: number): Picked | null {
    const lane = this.laneAt(y);
    if (!lane) return null;
    const row = rowAt(lane, y - this.laneTop(lane) - 2);
    return row === null ? null : pickSlice(lane.source, row, this.timeAt(x), this.nsPerPixel / this.scale);
  }

  /** Middle of a row in the body; of its track when folded; of its process when that is folded; null when hidden. */
  rowMiddle(source: Source, track: number | null, row: number | null): number | null {
    const about = row === null ? null : source.meta.rows[row];
    const number = about?.track ?? track;
    if (number === null || number === undefined) return null;
    const lane = this.layout.byTrack.get(trackKey(source, number));
    if (lane) return this.laneTop(lane) + 2 + ((about?.depth ?? 0) + 0.5) * lane.rowHeight;
    const process = source.meta.tracks[number]?.process;
    const group = this.layout.lanes.find((one) => one.kind === "process" && one.source === source && one.process?.id === process);
    return group ? this.laneTop(group) + group.height / 2 : null;
  }

  private readonly frame = (now: number): void => {
    this.request = 0;
    const moving = this.onFrame(this.lastTime && now - this.lastTime < 250 ? (now - this.lastTime) / 1000 : 1 / 60);
    this.frames.tick(now, moving);
    this.lastTime = now;
    if (this.dirty) {
      this.dirty = false;
      const began = performance.now();
      const complete = this.paint();
      this.frames.drew(performance.now() - began, this.painter.counts.rects);
      for (const source of this.scene.sources) {
        source.slices.flush();
        source.counters.flush();
      }
      this.onDrawn(complete);
      clearTimeout(this.prefetchTimer);
      if (complete && !moving) this.prefetchTimer = window.setTimeout(this.prefetch, PREFETCH_MS);
    }
    if (moving) this.draw();
    else this.lastTime = 0;
  };

  /** Draws everything; true when no tile was missing. */
  private paint(): boolean {
    const { painter, scene, scale, view } = this;
    if (!scene.sources.length) {
      this.blank();
      return false;
    }
    for (const source of scene.sources) {
      source.slices.begin();
      source.counters.begin();
    }
    painter.resize(this.surfaces.body.width, this.surfaces.body.height, scale);
    painter.begin(scene.theme);
    const lanes = this.visible();
    const clip = Math.round(this.layout.pinnedHeight * scale);
    for (const lane of lanes) this.paintLane(lane, view, lane.pinned ? 0 : clip);
    painter.put(this.body);
    const overview = this.paintOverview();
    this.overlay(lanes);
    this.paintTop();
    return painter.counts.missing === 0 && overview;
  }

  /** Before there is anything to draw: a canvas without alpha is black, in the light theme too. */
  private blank(): void {
    for (const context of [this.body, this.top]) {
      context.fillStyle = css(this.scene.theme.lane);
      context.fillRect(0, 0, context.canvas.width, context.canvas.height);
    }
  }

  private paintLane(lane: Lane, view: Window, clip: number): void {
    const { painter, scale, scene } = this;
    const top = Math.round(this.laneTop(lane) * scale);
    const tall = Math.round(lane.height * scale);
    if (lane.kind === "rank" || lane.kind === "process") {
      painter.band(Math.max(top, clip), Math.min(top + tall, this.surfaces.body.height) - Math.max(top, clip), word(scene.theme.group));
      if (lane.rows.length) painter.density(lane.source, lane.rows, view, top + Math.round(4 * scale), tall - Math.round(8 * scale), clip);
      return;
    }
    const inner = top + Math.round(2 * scale);
    if (lane.kind === "path") return; // drawn over the slices, see overlayPath
    if (lane.kind === "counter") {
      painter.counter(lane.source, lane.track!.id, view, inner, Math.round(lane.rowHeight * scale), clip, rgbOf(colourOf(lane.label)));
      return;
    }
    const rowTall = lane.rowHeight * scale;
    lane.rows.forEach((row, i) => {
      const y = inner + Math.round(i * rowTall);
      const high = Math.max(1, Math.round((i + 1) * rowTall) - Math.round(i * rowTall) - (lane.rowHeight > 4 ? Math.round(scale) : 0));
      if (y + high > clip && y < this.surfaces.body.height) painter.row(lane.source, row, view, y, high, clip, !lane.folded && lane.rowHeight >= LABEL_ROW && !(lane.label === IDLE && lane.source.path?.gaps));
    });
  }

  private overlay(lanes: readonly Lane[]): void {
    const { body: context, scene, scale, painter } = this;
    const { theme } = scene;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.save();
    const clip = this.layout.pinnedHeight;
    context.strokeStyle = css(theme.line);
    context.lineWidth = 1;
    context.beginPath();
    for (const lane of lanes) {
      const y = Math.round(this.laneTop(lane) + lane.height) - 0.5;
      if (lane.pinned || y > clip) {
        context.moveTo(0, y);
        context.lineTo(this.width, y);
      }
    }
    context.stroke();
    this.overlayPath(lanes);
    drawLabels(context, painter.labels, new Map(scene.sources.map((source) => [source.number, source])), theme, scale);
    if (clip) {
      context.fillStyle = css(theme.accent, 0.7);
      context.fillRect(0, clip - 1, this.width, 2);
    }
    this.overlayRange();
    for (const mark of scene.marks) {
      context.fillStyle = mark.colour;
      context.globalAlpha = mark.to === null ? 0.9 : 0.14;
      const x = this.xOf(mark.from);
      context.fillRect(x, 0, mark.to === null ? 1 : Math.max(1, this.xOf(mark.to) - x), this.height);
      context.globalAlpha = 1;
    }
    drawArrows(context, this.arrows(scene.flows), false);
    drawArrows(context, this.arrows(scene.selectedFlows), true);
    if (scene.reference && scene.reference !== scene.selected) this.outline(scene.reference, css(theme.faint), 1.5);
    if (this.hovered) this.outline(this.hovered, css(theme.ink, 0.55), 1);
    if (scene.selected) this.outline(scene.selected, css(theme.ink), 2);
    this.overlayStuck();
    if (this.pointer) {
      context.fillStyle = css(theme.ink, 0.28);
      context.fillRect(Math.round(this.pointer.x), 0, 1, this.height);
    }
    context.restore();
    context.setTransform(1, 0, 0, 1, 0, 0);
  }

  private overlayPath(lanes: readonly Lane[]): void {
    const context = this.body;
    for (const lane of lanes) {
      const known = lane.source.path;
      const idle = lane.kind === "slices" && lane.label === IDLE && !lane.folded;
      if (!known || (lane.kind !== "path" && !idle)) continue;
      context.save();
      context.beginPath();
      context.rect(0, lane.pinned ? 0 : this.layout.pinnedHeight, this.width, this.height);
      context.clip();
      const xOf = (time: number): number => this.xOf(time + lane.source.place);
      if (!idle) drawPath(context, known, { y: this.laneTop(lane) + 3, height: lane.rowHeight, width: this.width }, xOf, this.scene.theme, t);
      else if (known.gaps) drawIdle(context, known.gaps, { y: this.laneTop(lane) + 2, height: lane.rowHeight - 1, width: this.width }, xOf, this.scene.theme);
      context.restore();
    }
  }

  /** The piece of a critical path at a place of the body. */
  pickPath(x: number, y: number): { readonly source: Source; readonly start: number; readonly end: number; readonly kind: string; readonly id: number | null } | null {
    const lane = this.laneAt(y);
    const pieces = lane?.kind === "path" ? lane.source.path?.pieces : null;
    if (!lane || !pieces) return null;
    const time = this.timeAt(x) - lane.source.place;
    const near = 2 * this.nsPerPixel;
    let best = -1;
    for (let i = 0; i < pieces.start.length; i++) {
      if (pieces.end[i]! < time - near || pieces.start[i]! > time + near) continue;
      if (best < 0 || pieces.end[i]! - pieces.start[i]! > pieces.end[best]! - pieces.start[best]!) best = i;
    }
    return best < 0 ? null : { source: lane.source, start: pieces.start[best]!, end: pieces.end[best]!, kind: pieces.kind[best]!, id: pieces.id[best]! };
  }

  /** Bands of the headings that stay at the top; what is scrolled below them does not show through. */
  private overlayStuck(): void {
    const { theme } = this.scene;
    const { pinnedHeight } = this.layout;
    for (const { lane, top } of this.stuck()) {
      const from = Math.max(top, pinnedHeight + (pinnedHeight ? 1 : 0));
      const to = top + lane.height;
      if (to <= from) continue;
      this.body.fillStyle = css(theme.group);
      this.body.fillRect(0, from, this.width, to - from);
      this.body.fillStyle = css(theme.line);
      this.body.fillRect(0, to - 1, this.width, 1);
    }
  }

  private overlayRange(): void {
    const { range, theme } = this.scene;
    if (!range) return;
    const context = this.body;
    const a = this.xOf(range.from);
    const b = this.xOf(range.to);
    context.fillStyle = css(theme.accent, 0.12);
    if (range.tracks === null) context.fillRect(a, 0, Math.max(1, b - a), this.height);
    else
      for (const key of range.tracks) {
        const lane = this.layout.byTrack.get(key);
        if (lane) context.fillRect(a, this.laneTop(lane), Math.max(1, b - a), lane.height);
      }
    context.fillStyle = css(theme.accent);
    context.fillRect(a, 0, 1, this.height);
    context.fillRect(b, 0, 1, this.height);
  }

  private outline(slice: { source: Source; row: number; start: number; dur: number }, colour: string, wide: number): void {
    const middle = this.rowMiddle(slice.source, null, slice.row);
    if (middle === null) return;
    const track = slice.source.meta.rows[slice.row]?.track ?? -1;
    const lane = this.layout.byTrack.get(trackKey(slice.source, track));
    const tall = lane ? lane.rowHeight : 14;
    if (!lane?.pinned && middle - tall / 2 < this.layout.pinnedHeight - tall) return;
    const a = Math.max(-4, this.xOf(slice.start + slice.source.place));
    const b = Math.min(this.width + 4, this.xOf(slice.start + slice.dur + slice.source.place));
    if (b < 0 || a > this.width) return;
    this.body.strokeStyle = colour;
    this.body.lineWidth = wide;
    this.body.strokeRect(a - 0.5, middle - tall / 2, Math.max(2, b - a), Math.max(3, tall - 1));
  }

  private arrows(flows: readonly Flow[]): Arrow[] {
    const found: Arrow[] = [];
    for (const { from, to, category } of flows) {
      const y0 = this.rowMiddle(from.source, from.track, from.row);
      const y1 = this.rowMiddle(to.source, to.track, to.row);
      if (y0 === null || y1 === null || Math.max(y0, y1) < 0 || Math.min(y0, y1) > this.height) continue;
      const x0 = this.xOf(from.time + from.source.place);
      const x1 = this.xOf(to.time + to.source.place);
      if (Math.max(x0, x1) < -20 || Math.min(x0, x1) > this.width + 20) continue;
      found.push({ x0, y0, x1, y1, colour: colourOf(category) });
    }
    return found;
  }

  /** Density of the whole timeline by process, of many ranks those of some; true when it is there. */
  private paintOverview(): boolean {
    const key = `${this.width} ${this.view.first} ${this.view.last} ${this.scene.sources.map((one) => one.place).join()}`;
    if (key === this.overviewKey && this.overviewReady) return true;
    const inv = this.width / (this.view.last - this.view.first);
    const lines: Float32Array[] = [];
    const own = new Float32Array(this.width);
    let ready = true;
    const shown = spread(this.scene.sources, MANY_SOURCES);
    // All rows: the outermost alone are mostly one long slice. Of very many rows only those.
    const every = shown.reduce((sum, source) => sum + source.meta.rows.length, 0) <= OVERVIEW_ROWS;
    for (const source of shown) {
      const from = this.view.first - source.place;
      const byProcess = new Map<number, Float32Array>();
      const level = Math.max(0, source.meta.levels.max_level - Math.max(0, Math.round(Math.log2(this.width / 1024))) - 1);
      const wide = BINS * 2 ** level;
      for (const track of source.meta.tracks) {
        let line = byProcess.get(track.process);
        if (!line) byProcess.set(track.process, (line = new Float32Array(this.width)));
        for (const row of track.rows ?? []) {
          const { depth, first_ns, last_ns } = source.meta.rows[row]!;
          if (depth > 0 && !every) continue;
          own.fill(0);
          for (let index = Math.floor(first_ns / wide); index * wide <= last_ns; index++) {
            const tile = source.slices.find(row, level, index);
            if (!source.slices.complete) ready = false;
            if (tile) addBusy(own, tile, from, index * wide, (index + 1) * wide, inv, this.width);
          }
          for (let x = 0; x < this.width; x++) line[x]! += own[x]!;
        }
      }
      for (const process of source.meta.processes) {
        const line = byProcess.get(process.id);
        const most = line?.reduce((a, b) => Math.max(a, b), 0) ?? 0;
        if (line && most > 0) lines.push(line.map((value) => value / most));
      }
    }
    this.overviewLines = lines;
    this.overviewReady = ready;
    this.overviewKey = key;
    return ready;
  }

  private paintTop(): void {
    const { top: context, scale, scene, view } = this;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const whole = { from: view.first, to: view.last };
    drawOverview(context, { whole, window: view, width: this.width, height: OVERVIEW, theme: scene.theme, lines: this.overviewLines, hits: scene.hits });
    const first = scene.sources[0]!;
    const cursor = this.pointer ? this.timeAt(this.pointer.x) : null;
    drawRuler(context, {
      window: view, width: this.width, top: OVERVIEW, height: RULER, theme: scene.theme, marks: scene.marks, range: scene.range, cursor, origin: this.origin.ns,
      cursorText: cursor === null ? "" : this.rawTime ? `${rawUs(first.meta.base_ns, cursor - first.place)} us` : this.timeText(cursor),
      steps: first.meta.steps.map((step) => ({ text: `Step ${step.step}`, from: step.start_ns + first.place, to: step.end_ns + first.place })),
    });
    context.setTransform(1, 0, 0, 1, 0, 0);
  }

  /** Tiles that the next key press will need: beside the window, one level closer and one further. */
  private readonly prefetch = (): void => {
    for (const source of this.scene.sources) {
      if (!source.slices.idle) return;
      source.slices.begin();
      const level = Math.min(source.meta.levels.max_level, levelFor(this.nsPerPixel / this.scale));
      const from = this.view.from - source.place;
      const to = this.view.to - source.place;
      const middle = this.pointer ? this.timeAt(this.pointer.x) - source.place : (from + to) / 2;
      const half = (to - from) / 2;
      for (const lane of this.visible()) {
        if (lane.source !== source) continue;
        for (const row of lane.rows) {
          this.ahead(source, row, level, from - half, to + half);
          if (level > 0) this.ahead(source, row, level - 1, middle - half / 2, middle + half / 2);
          this.ahead(source, row, level + 1, from - half, to + half);
        }
      }
      source.slices.flush();
    }
  };

  private ahead(source: Source, row: number, level: number, from: number, to: number): void {
    const about = source.meta.rows[row];
    if (!about || level > source.meta.levels.max_level) return;
    const wide = BINS * 2 ** level;
    const last = Math.floor(Math.min(to, about.last_ns) / wide);
    for (let index = Math.floor(Math.max(0, from, about.first_ns) / wide); index <= last; index++) source.slices.find(row, level, index);
  }
}

function rgbOf(hex: string): Rgb {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)) as unknown as Rgb;
}
