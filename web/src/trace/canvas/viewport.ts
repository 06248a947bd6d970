// SPDX-License-Identifier: Apache-2.0
// The time window: zoom, pan, and the way back.

const MOST_KEPT = 100;
const SHORTEST = 8; // ns: a slice of 1 ns is then an eighth of the picture

export class Viewport {
  from = 0;
  to = 1;
  /** The whole timeline. */
  first = 0;
  last = 1;
  private readonly past: [number, number][] = [];

  get length(): number {
    return this.to - this.from;
  }

  /** Remember the window, for Backspace. */
  keep(): void {
    const top = this.past.at(-1);
    if (top && top[0] === this.from && top[1] === this.to) return;
    this.past.push([this.from, this.to]);
    if (this.past.length > MOST_KEPT) this.past.shift();
  }

  back(): boolean {
    let window = this.past.pop();
    while (window && window[0] === this.from && window[1] === this.to) window = this.past.pop();
    if (!window) return false;
    [this.from, this.to] = window;
    return true;
  }

  set(from: number, to: number): void {
    if (!Number.isFinite(from) || !Number.isFinite(to)) return;
    const middle = (from + to) / 2;
    // Room for twice the capture on both sides, so that a zoomed-out reader never gets lost.
    const longest = Math.max(SHORTEST, (this.last - this.first) * 3);
    const length = Math.min(longest, Math.max(SHORTEST, to - from));
    const low = this.first - length * 0.9;
    const high = this.last - length * 0.1;
    this.from = Math.min(high, Math.max(low, middle - length / 2));
    this.to = this.from + length;
  }

  zoom(factor: number, at: number): void {
    this.set(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(ns: number): void {
    this.set(this.from + ns, this.to + ns);
  }

  whole(): void {
    const margin = Math.max(1, (this.last - this.first) * 0.005);
    this.set(this.first - margin, this.last + margin);
  }

  /** The window around [from, to) with a margin that tells what is beside it. */
  fit(from: number, to: number): void {
    const margin = Math.max(2, (to - from) * 0.1);
    this.set(from - margin, to + margin);
  }

  /** Moves just so far that the stretch can be seen. */
  reveal(from: number, to: number): void {
    const length = this.length;
    if (to - from < length / 400 || to - from > length) this.fit(from - (to - from) * 4, to + (to - from) * 4);
    else if (from < this.from || to > this.to) this.set((from + to) / 2 - length / 2, (from + to) / 2 + length / 2);
  }
}
