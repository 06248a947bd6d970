// SPDX-License-Identifier: Apache-2.0
// Tiles of a timeline: which there are, which are asked for, and what to draw while one is missing.
//
// Tile (row, k, i) covers 512 bins of 2^k ns. A tile that is exact (every entry one slice) stays exact at every closer
// look, so nothing is asked for inside it: zooming into a quiet stretch costs no request at all.

import type { Api } from "../../api";
import { type Columns, readColumns } from "./columns";

export const BINS = 512;
const MOST_ASKED = 256;
const MOST_UNDERWAY = 4;
const MOST_TILES = 20_000;
const MOST_BYTES = 64 << 20;
const RETRY_MS = 2000;
// level * 2^44 + index is exact in a double: captures are shorter than 2^53 ns.
const LEVEL = 2 ** 44;

export interface Tile {
  readonly n: number;
  readonly bytes: number;
  readonly exact: boolean;
  used: number;
}

export interface SliceTile extends Tile {
  readonly start: Float64Array;
  readonly dur: Float64Array;
  readonly name: Uint32Array;
  readonly id: Uint32Array;
  readonly count: Uint32Array;
  readonly busy: Float32Array;
}

export interface CounterTile extends Tile {
  readonly time: Float64Array;
  readonly first: Float64Array;
  readonly min: Float64Array;
  readonly max: Float64Array;
  readonly last: Float64Array;
  readonly count: Uint32Array;
}

function allOnes(count: Uint32Array): boolean {
  for (let i = 0; i < count.length; i++) if (count[i]! > 1) return false;
  return true;
}

export function sliceTile({ n, bytes, columns }: Columns): SliceTile {
  const count = columns["count"] as Uint32Array;
  return {
    n, bytes, exact: allOnes(count), used: 0, count,
    start: columns["start"] as Float64Array,
    dur: columns["dur"] as Float64Array,
    name: columns["name"] as Uint32Array,
    id: columns["id"] as Uint32Array,
    busy: columns["busy"] as Float32Array,
  };
}

export function counterTile({ n, bytes, columns }: Columns): CounterTile {
  const count = columns["count"] as Uint32Array;
  return {
    n, bytes, exact: allOnes(count), used: 0, count,
    time: columns["time"] as Float64Array,
    first: columns["first"] as Float64Array,
    min: columns["min"] as Float64Array,
    max: columns["max"] as Float64Array,
    last: columns["last"] as Float64Array,
  };
}

/** Id of an entry; the server keeps ids below 2^53. */
export const idAt = (tile: SliceTile, j: number): number => tile.id[2 * j]! + tile.id[2 * j + 1]! * 4294967296;

/** Level whose bins are at most one pixel wide. */
export const levelFor = (nsPerPixel: number): number => Math.max(0, Math.floor(Math.log2(nsPerPixel)));

export interface TileCounts {
  tiles: number;
  bytes: number;
  requests: number;
}

export class TileStore<T extends Tile> {
  readonly counts: TileCounts = { tiles: 0, bytes: 0, requests: 0 };
  /** Set by `find`: whether what it returned is as fine as asked for. */
  complete = false;
  private readonly rows = new Map<number, Map<number, T>>();
  private readonly pending = new Map<number, Set<number>>();
  private wanted: [number, number, number][] = [];
  private underway = 0;
  private clock = 1;
  private readonly stop = new AbortController();

  constructor(
    private readonly api: Api,
    private readonly route: string,
    private readonly make: (columns: Columns) => T,
    private readonly topLevel: number,
    private readonly onTiles: () => void,
    private readonly onProblem: (problem: unknown) => void,
  ) {}

  destroy(): void {
    this.stop.abort();
  }

  get idle(): boolean {
    return this.underway === 0 && this.wanted.length === 0;
  }

  /** A frame begins: what was wanted before and not asked for yet no longer matters. */
  begin(): void {
    this.clock++;
    this.wanted = [];
  }

  peek(row: number, level: number, index: number): T | undefined {
    return this.rows.get(row)?.get(level * LEVEL + index);
  }

  /** The tile, or the nearest coarser one there is; asks for what is missing. */
  find(row: number, level: number, index: number, ask = true): T | undefined {
    const own = this.rows.get(row);
    let found: T | undefined;
    let k = level;
    if (own) {
      for (let at = index; k <= this.topLevel; k++) {
        found = own.get(k * LEVEL + at);
        if (found) break;
        at = Math.floor(at / 2);
      }
    }
    this.complete = found !== undefined && (found.exact || k === level);
    if (found) found.used = this.clock;
    if (!this.complete && ask) this.want(row, level, index);
    return found;
  }

  want(row: number, level: number, index: number): void {
    if (this.pending.get(row)?.has(level * LEVEL + index)) return;
    this.wanted.push([row, level, index]);
  }

  /** Sends what is wanted: one request per frame, a few under way. */
  flush(): void {
    if (!this.wanted.length || this.underway >= MOST_UNDERWAY) return;
    const keys = this.wanted.splice(0, MOST_ASKED);
    for (const [row, level, index] of keys) {
      let own = this.pending.get(row);
      if (!own) this.pending.set(row, (own = new Set()));
      own.add(level * LEVEL + index);
    }
    void this.ask(keys);
  }

  private async ask(keys: [number, number, number][]): Promise<void> {
    this.underway++;
    this.counts.requests++;
    try {
      const frames = readColumns(await this.api.postBytes(this.route, keys, { signal: this.stop.signal }));
      frames.forEach((frame, i) => this.put(keys[i]!, this.make(frame)));
      this.release(keys);
      this.evict();
      this.onTiles();
    } catch (problem) {
      if (this.stop.signal.aborted) return;
      setTimeout(() => {
        this.release(keys);
        this.onTiles();
      }, RETRY_MS);
      this.onProblem(problem);
    } finally {
      this.underway--;
    }
  }

  private put([row, level, index]: [number, number, number], tile: T): void {
    let own = this.rows.get(row);
    if (!own) this.rows.set(row, (own = new Map()));
    tile.used = this.clock;
    own.set(level * LEVEL + index, tile);
    this.counts.tiles++;
    this.counts.bytes += tile.bytes;
  }

  private release(keys: [number, number, number][]): void {
    for (const [row, level, index] of keys) this.pending.get(row)?.delete(level * LEVEL + index);
  }

  private evict(): void {
    if (this.counts.tiles <= MOST_TILES && this.counts.bytes <= MOST_BYTES) return;
    const all: [number, Map<number, T>, number, T][] = [];
    for (const own of this.rows.values())
      // The coarsest tiles are what is drawn before anything else has come.
      for (const [key, tile] of own) if (Math.floor(key / LEVEL) < this.topLevel - 1) all.push([tile.used, own, key, tile]);
    all.sort((a, b) => a[0] - b[0]);
    for (const [used, own, key, tile] of all) {
      if (used === this.clock || (this.counts.tiles < 0.75 * MOST_TILES && this.counts.bytes < 0.75 * MOST_BYTES)) break;
      own.delete(key);
      this.counts.tiles--;
      this.counts.bytes -= tile.bytes;
    }
  }
}
