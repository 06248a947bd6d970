// SPDX-License-Identifier: Apache-2.0
// The keyboard (docs/reference/viewer.md 8). A held key keeps moving; a tap moves a little.

import type { Timeline } from "../canvas/timeline";

export interface KeyActions {
  moved(): void;
  fit(): void;
  whole(): void;
  back(): void;
  zoomToRange(): void;
  rangeOfSlice(): void;
  mark(): void;
  next(direction: 1 | -1, same: boolean): void;
  gap(direction: 1 | -1): void;
  details(): void;
  follow(forward: boolean): void;
  pin(): void;
  hide(): void;
  fold(): void;
  panel(): void;
  align(end: boolean): void;
  search(): void;
  hit(direction: 1 | -1): void;
  clear(): boolean;
  menu(): void;
}

const TAP = 0.1; // seconds that a tap moves
const MOVES: Readonly<Record<string, string>> = {
  w: "in", s: "out", a: "left", d: "right", ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down",
};

export class Keys {
  /** Moves under way: how long they have run (seconds) and whether the key is up again. */
  private readonly held = new Map<string, { done: number; released: boolean }>();
  private fast = false;
  private readonly stop = new AbortController();
  private readonly still = window.matchMedia("(prefers-reduced-motion: reduce)");

  constructor(private readonly timeline: Timeline, private readonly actions: KeyActions, private readonly scope: HTMLElement) {
    const options = { signal: this.stop.signal };
    window.addEventListener("keydown", this.down, options);
    window.addEventListener("keyup", this.up, options);
    window.addEventListener("blur", () => this.held.clear(), options);
  }

  destroy(): void {
    this.stop.abort();
  }

  /** Moves by the keys that are held; true while any is. */
  step(seconds: number): boolean {
    const { timeline } = this;
    if (!this.held.size) return false;
    for (const [move, state] of this.held) {
      // A tap was let go already; it still runs for its little while, however slow the frames are.
      const dt = Math.min(0.05, seconds, state.released ? TAP - state.done : Infinity);
      if (dt > 0) this.apply(move, dt * (this.fast ? 3 : 1));
      state.done += dt;
      if (state.released && state.done >= TAP - 1e-9) this.held.delete(move);
    }
    this.actions.moved();
    timeline.draw();
    return true;
  }

  private apply(move: string, dt: number): void {
    const { timeline } = this;
    const { view } = timeline;
    const at = timeline.pointer ? timeline.timeAt(timeline.pointer.x) : (view.from + view.to) / 2;
    if (move === "in") view.zoom(Math.exp(-2.8 * dt), at);
    else if (move === "out") view.zoom(Math.exp(2.8 * dt), at);
    else if (move === "left") view.pan(-1.1 * view.length * dt);
    else if (move === "right") view.pan(1.1 * view.length * dt);
    else timeline.surfaces.scroll.scrollTop += (move === "up" ? -1 : 1) * 700 * dt;
  }

  private readonly up = (event: KeyboardEvent): void => {
    this.fast = event.shiftKey;
    const move = MOVES[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    const state = move ? this.held.get(move) : undefined;
    if (state) state.released = true;
  };

  private readonly down = (event: KeyboardEvent): void => {
    if (event.defaultPrevented || event.isComposing || this.elsewhere(event)) return;
    this.fast = event.shiftKey;
    if (this.command(event)) {
      // What a tap has left to run would move on from where the command went.
      this.held.clear();
      event.preventDefault();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const move = MOVES[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!move || (move.length && event.key.startsWith("Arrow") && this.inList(event))) return;
    event.preventDefault();
    if (this.still.matches) {
      this.timeline.view.keep();
      this.apply(move, TAP);
      this.actions.moved();
      this.timeline.draw();
      return;
    }
    if (!this.held.size) this.timeline.view.keep();
    const state = this.held.get(move);
    // Pressed again before the last tap had run out: its rest is not lost.
    if (!event.repeat || !state) this.held.set(move, { done: state ? Math.min(0, state.done - TAP) : 0, released: false });
    this.timeline.draw();
  };

  /** Keys typed into a field, or into another part of the page that is a dialog, are not ours. */
  private elsewhere(event: KeyboardEvent): boolean {
    const target = event.target instanceof Element ? event.target : null;
    if (target?.closest("dialog, [role=dialog], [role=menu]") && !this.scope.contains(target)) return true;
    if (target?.closest("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape" && this.scope.contains(target)) (target as HTMLElement).blur();
      return true;
    }
    return (event.key === "Enter" || event.key === " ") && target?.closest("button, a, summary, [role=row]") !== null;
  }

  private inList(event: KeyboardEvent): boolean {
    return event.target instanceof Element && event.target.closest("[role=listbox], table, .trace-panel, summary, [role=separator]") !== null;
  }

  private command(event: KeyboardEvent): boolean {
    const { actions } = this;
    const control = event.ctrlKey || event.metaKey;
    if (event.altKey) return false;
    if (control) {
      if (event.key === "0") actions.whole();
      else if (event.key.toLowerCase() === "f") actions.search();
      else return false;
      return true;
    }
    switch (event.key) {
      case "ContextMenu": actions.menu(); return true;
      case "F10": if (event.shiftKey) actions.menu(); return event.shiftKey;
      case "f": case "F": actions.fit(); return true;
      case "Z": actions.zoomToRange(); return true;
      case "Backspace": actions.back(); return true;
      case "m": case "M": actions.rangeOfSlice(); return true;
      case "k": case "K": actions.mark(); return true;
      case ".": actions.next(1, false); return true;
      case ",": actions.next(-1, false); return true;
      case ">": actions.gap(1); return true;
      case "<": actions.gap(-1); return true;
      case "]": actions.next(1, true); return true;
      case "[": actions.next(-1, true); return true;
      case "Enter": actions.details(); return true;
      case "g": actions.follow(true); return true;
      case "G": actions.follow(false); return true;
      case "p": case "P": actions.pin(); return true;
      case "h": case "H": actions.hide(); return true;
      case "e": case "E": actions.fold(); return true;
      case "q": case "Q": actions.panel(); return true;
      case "l": case "L": actions.align(false); return true;
      case "r": case "R": actions.align(true); return true;
      case "/": actions.search(); return true;
      case "n": actions.hit(1); return true;
      case "N": actions.hit(-1); return true;
      case "Escape": return actions.clear();
      default: return false;
    }
  }
}
