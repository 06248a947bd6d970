// SPDX-License-Identifier: Apache-2.0
// Which slice or sample is under the pointer.

import type { Lane } from "./layout";
import { firstReaching, lowerBound, type Window } from "./paint";
import type { Source } from "../data/source";
import { BINS, idAt, levelFor, type SliceTile } from "../data/tiles";

/** What one place of the picture stands for. `count` > 1: that many slices, `name` and `id` those of the longest. */
export interface Picked {
  readonly source: Source;
  readonly row: number;
  readonly id: number;
  readonly name: number;
  readonly start: number;
  readonly dur: number;
  readonly count: number;
  readonly busy: number;
}

const NEAR = 3; // pixels beside a thin slice that still mean it

function tileAt(source: Source, row: number, time: number, nsPerPixel: number): SliceTile | undefined {
  const level = Math.min(source.meta.levels.max_level, levelFor(nsPerPixel));
  return time < 0 ? undefined : source.slices.find(row, level, Math.floor(time / (BINS * 2 ** level)), false);
}

/** The slice of a row nearest to `time` (the timeline's), within some pixels. */
export function pickSlice(source: Source, row: number, time: number, nsPerPixel: number): Picked | null {
  const own = time - source.place;
  const reach = NEAR * nsPerPixel;
  const tile = tileAt(source, row, Math.max(0, own), nsPerPixel);
  if (!tile) return null;
  let best = -1;
  let bestGap = Infinity;
  for (let j = firstReaching(tile, own - reach); j < tile.n; j++) {
    const start = tile.start[j]!;
    if (start > own + reach) break;
    const end = start + tile.dur[j]!;
    const gap = own < start ? start - own : own >= end ? own - end : 0;
    if (gap > reach) continue;
    if (gap < bestGap || (gap === bestGap && best >= 0 && tile.dur[j]! > tile.dur[best]!)) {
      best = j;
      bestGap = gap;
    }
  }
  if (best < 0) return null;
  return {
    source, row, id: idAt(tile, best), name: tile.name[best]!, start: tile.start[best]!, dur: tile.dur[best]!,
    count: tile.count[best]!, busy: tile.busy[best]!,
  };
}

/** Row of a lane at `y` below the lane's top. */
export function rowAt(lane: Lane, y: number): number | null {
  if (lane.kind !== "slices" || y < 0) return null;
  return lane.rows[Math.floor(y / lane.rowHeight)] ?? null;
}

export interface Sample {
  readonly first: number;
  readonly min: number;
  readonly max: number;
  readonly last: number;
  readonly count: number;
}

export function pickSample(source: Source, track: number, time: number, nsPerPixel: number): Sample | null {
  const own = time - source.place;
  const level = Math.min(source.meta.levels.max_level, levelFor(nsPerPixel));
  if (own < 0) return null;
  const tile = source.counters.find(track, level, Math.floor(own / (BINS * 2 ** level)), false);
  if (!tile) return null;
  const j = lowerBound(tile.time, own + 1) - 1;
  return j < 0 ? null : { first: tile.first[j]!, min: tile.min[j]!, max: tile.max[j]!, last: tile.last[j]!, count: tile.count[j]! };
}

/** Slices (or clusters) of a row inside the window, at most `most`. */
export function inView(source: Source, row: number, window: Window, nsPerPixel: number, most: number): Picked[] {
  const found: Picked[] = [];
  const from = Math.max(0, window.from - source.place);
  const to = window.to - source.place;
  const level = Math.min(source.meta.levels.max_level, levelFor(nsPerPixel));
  const width = BINS * 2 ** level;
  for (let index = Math.floor(from / width); index * width < Math.min(to, source.meta.length_ns + 1); index++) {
    const tile = source.slices.find(row, level, index, false);
    if (!tile) continue;
    const left = Math.max(from, index * width);
    const right = Math.min(to, (index + 1) * width);
    for (let j = firstReaching(tile, left); j < tile.n && tile.start[j]! < right; j++) {
      const inside = tile.start[j]! >= left || (index * width <= from && tile.start[j]! + tile.dur[j]! > from);
      if (!inside) continue;
      if (found.length >= most) return found;
      found.push({
        source, row, id: idAt(tile, j), name: tile.name[j]!, start: tile.start[j]!, dur: tile.dur[j]!, count: tile.count[j]!,
        busy: tile.busy[j]!,
      });
    }
  }
  return found;
}
