// SPDX-License-Identifier: Apache-2.0
// Mouse, trackpad and pen on the timeline.

import { type Lane, trackKey } from "../canvas/layout";
import type { Picked } from "../canvas/pick";
import { OVERVIEW, type Range, type Timeline } from "../canvas/timeline";

export interface GestureActions {
  select(picked: Picked | null): void;
  /** A click on the critical path. */
  path(piece: NonNullable<ReturnType<Timeline["pickPath"]>>): void;
  /** The other mouse button; places are of the window. */
  menu(picked: Picked | null, lane: Lane | null, x: number, y: number): void;
  /** `done`: the pointer was let go. */
  range(range: Range | null, done: boolean): void;
  hover(picked: Picked | null, x: number, y: number): void;
  moved(): void;
  scrolled(): void;
}

type Drag = "none" | "pan" | "range" | "zoom" | "overview" | "ruler";
const CLICK = 4; // pixels that a click may wander

export class Gestures {
  private drag: Drag = "none";
  private startX = 0;
  private startY = 0;
  private lastX = 0;
  private lastY = 0;
  private wandered = false;
  private readonly stop = new AbortController();

  constructor(private readonly timeline: Timeline, private readonly actions: GestureActions) {
    const { body, top, scroll } = timeline.surfaces;
    const options = { signal: this.stop.signal };
    body.addEventListener("pointerdown", this.down, options);
    body.addEventListener("pointermove", this.move, options);
    body.addEventListener("pointerup", this.up, options);
    body.addEventListener("pointercancel", this.cancel, options);
    body.addEventListener("pointerleave", this.leave, options);
    body.addEventListener("dblclick", this.double, options);
    body.addEventListener("contextmenu", this.context, options);
    top.addEventListener("pointerdown", this.topDown, options);
    top.addEventListener("pointermove", this.topMove, options);
    top.addEventListener("pointerup", this.up, options);
    top.addEventListener("pointercancel", this.cancel, options);
    for (const surface of [body, top]) surface.addEventListener("wheel", this.wheel, { passive: false, signal: this.stop.signal });
    scroll.addEventListener("scroll", this.scrolled, { passive: true, signal: this.stop.signal });
  }

  destroy(): void {
    this.stop.abort();
  }

  private readonly scrolled = (): void => {
    // Another slice is under the pointer now, or none.
    this.timeline.hovered = null;
    this.actions.hover(null, 0, 0);
    this.actions.scrolled();
    this.timeline.draw();
  };

  private readonly context = (event: MouseEvent): void => {
    event.preventDefault();
    this.drag = "none";
    this.actions.menu(this.timeline.pick(event.offsetX, event.offsetY), this.timeline.laneAt(event.offsetY), event.clientX, event.clientY);
  };

  private readonly down = (event: PointerEvent): void => {
    if (event.button > 1) return;
    this.timeline.surfaces.body.focus({ preventScroll: true });
    this.begin(event, event.shiftKey || (this.timeline.areas && event.button === 0) ? "range" : event.altKey ? "zoom" : "pan");
  };

  private begin(event: PointerEvent, drag: Drag): void {
    (event.target as Element).setPointerCapture(event.pointerId);
    this.drag = drag;
    this.wandered = false;
    [this.startX, this.startY] = [event.offsetX, event.offsetY];
    [this.lastX, this.lastY] = [event.clientX, event.clientY];
    if (drag !== "range" && drag !== "ruler") this.timeline.view.keep();
  }

  private readonly move = (event: PointerEvent): void => {
    const { timeline } = this;
    timeline.pointer = { x: event.offsetX, y: event.offsetY };
    if (this.drag === "none") {
      const picked = timeline.pick(event.offsetX, event.offsetY);
      timeline.hovered = picked;
      timeline.surfaces.body.style.cursor = picked ? "pointer" : "";
      this.actions.hover(picked, event.offsetX, event.offsetY);
      timeline.draw();
      return;
    }
    this.track(event);
  };

  private track(event: PointerEvent): void {
    const { timeline } = this;
    if (Math.abs(event.offsetX - this.startX) + Math.abs(event.offsetY - this.startY) > CLICK) this.wandered = true;
    if (!this.wandered) return;
    timeline.hovered = null;
    this.actions.hover(null, 0, 0);
    if (this.drag === "pan") {
      timeline.view.pan(-(event.clientX - this.lastX) * timeline.nsPerPixel);
      timeline.surfaces.scroll.scrollTop -= event.clientY - this.lastY;
      this.actions.moved();
    } else if (this.drag === "range" || this.drag === "zoom" || this.drag === "ruler") this.actions.range(this.rangeTo(event), false);
    else if (this.drag === "overview") this.overviewTo(event.offsetX);
    [this.lastX, this.lastY] = [event.clientX, event.clientY];
    timeline.draw();
  }

  private rangeTo(event: PointerEvent): Range {
    const { timeline } = this;
    const ends = [this.startX, event.offsetX].map((x) => timeline.timeAt(Math.max(0, Math.min(timeline.width, x)))).sort((a, b) => a - b);
    let tracks: Set<string> | null = null;
    if (this.drag === "range") {
      const [top, bottom] = [this.startY, event.offsetY].sort((a, b) => a - b) as [number, number];
      tracks = new Set();
      for (const lane of timeline.visible()) {
        const y = timeline.laneTop(lane);
        if (y + lane.height <= top || y > bottom) continue;
        if (lane.kind === "slices") tracks.add(lane.key);
        else if (lane.kind === "process" && lane.folded)
          for (const one of lane.source.meta.tracks) if (one.process === lane.process?.id && one.kind === "slice") tracks.add(trackKey(lane.source, one.id));
      }
    }
    return { from: Math.floor(ends[0]!), to: Math.max(Math.floor(ends[0]!) + 1, Math.ceil(ends[1]!)), tracks };
  }

  private readonly up = (event: PointerEvent): void => {
    const { drag, timeline } = this;
    this.drag = "none";
    if (drag === "none") return;
    if (!this.wandered) {
      if (drag === "ruler") this.actions.range(null, true);
      else if (drag !== "overview") {
        const piece = timeline.pickPath(event.offsetX, event.offsetY);
        if (piece) this.actions.path(piece);
        else this.actions.select(timeline.pick(event.offsetX, event.offsetY));
      }
      return;
    }
    if (drag === "range" || drag === "ruler") {
      this.drag = drag;
      const range = this.rangeTo(event);
      this.drag = "none";
      this.actions.range(range, true);
    } else if (drag === "zoom") {
      const range = this.rangeTo(event);
      this.actions.range(null, true);
      timeline.view.set(range.from, range.to);
      this.actions.moved();
      timeline.draw();
    }
  };

  private readonly cancel = (): void => {
    this.drag = "none";
  };

  private readonly leave = (): void => {
    if (this.drag !== "none") return;
    this.timeline.pointer = null;
    this.timeline.hovered = null;
    this.actions.hover(null, 0, 0);
    this.timeline.draw();
  };

  private readonly double = (event: MouseEvent): void => {
    const picked = this.timeline.pick(event.offsetX, event.offsetY);
    if (!picked) return;
    this.timeline.view.keep();
    this.timeline.view.fit(picked.start + picked.source.place, picked.start + picked.dur + picked.source.place);
    this.actions.moved();
    this.timeline.draw();
  };

  private readonly topDown = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    this.begin(event, event.offsetY < OVERVIEW ? "overview" : event.altKey ? "zoom" : event.ctrlKey ? "pan" : "ruler");
    if (this.drag === "overview") {
      const { view, width } = this.timeline;
      const time = view.first + (event.offsetX / width) * (view.last - view.first);
      if (time < view.from || time > view.to) this.overviewTo(event.offsetX);
    }
  };

  private readonly topMove = (event: PointerEvent): void => {
    if (this.drag === "none") {
      this.timeline.pointer = { x: event.offsetX, y: -1 };
      this.timeline.draw();
    } else this.track(event);
  };

  /** The window's middle goes where the pointer is on the overview strip. */
  private overviewTo(x: number): void {
    const { view, width } = this.timeline;
    const time = view.first + (x / width) * (view.last - view.first);
    view.set(time - view.length / 2, time + view.length / 2);
    this.actions.moved();
    this.timeline.draw();
  }

  private readonly wheel = (event: WheelEvent): void => {
    const { timeline } = this;
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? timeline.height : 1;
    if (event.ctrlKey || event.metaKey) {
      timeline.view.zoom(Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY * unit * 0.004))), timeline.timeAt(event.offsetX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      timeline.view.pan((event.deltaX || event.deltaY) * unit * timeline.nsPerPixel);
    } else {
      timeline.surfaces.scroll.scrollTop += event.deltaY * unit;
      event.preventDefault();
      timeline.draw();
      return;
    }
    event.preventDefault();
    this.actions.moved();
    timeline.draw();
  };
}
