// SPDX-License-Identifier: Apache-2.0
// Frame times of the timeline, for tests and for the benchmark.

const KEPT = 4000;

export class Frames {
  /** Time from frame to frame while something moves, ms. */
  readonly times: number[] = [];
  /** Time of our own work per frame, ms. */
  readonly draws: number[] = [];
  rects = 0;
  private last = 0;

  tick(now: number, moving: boolean): void {
    if (this.last) keep(this.times, now - this.last);
    this.last = moving ? now : 0;
  }

  drew(ms: number, rects: number): void {
    keep(this.draws, ms);
    this.rects = rects;
  }

  clear(): void {
    this.times.length = this.draws.length = 0;
    this.last = 0;
  }
}

function keep(values: number[], value: number): void {
  values.push(value);
  if (values.length > KEPT) values.splice(0, values.length - KEPT);
}
