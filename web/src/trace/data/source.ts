// SPDX-License-Identifier: Apache-2.0
// One capture in the timeline: its tracks, names, colours and tiles, and where its clock stands beside the first one's.

import type { Api, Progress } from "../../api";
import { colourOf } from "../../colour";
import type { Clock } from "./clocks";
import type { Busy, Meta, Path } from "./model";
import type { Theme } from "../canvas/theme";
import { counterTile, type CounterTile, sliceTile, type SliceTile, TileStore } from "./tiles";

const NAMES_AT_ONCE = 100_000;
export const SHADES = 4;

export class Source {
  readonly slices: TileStore<SliceTile>;
  readonly counters: TileStore<CounterTile>;
  readonly names: string[] = [];
  /** Colour words by name id, SHADES per name: from hardly covered to covered. */
  shades: Uint32Array = new Uint32Array(0);
  /** Whether the label on a name's colour is to be light. */
  lightText: Uint8Array = new Uint8Array(0);
  /** Added to the capture's own times to get those of the timeline. */
  offset = 0;
  /** What the reader added to that. */
  shift = 0;
  /** Where its clock stands on the common clock of the run; null while that is not known. */
  clock: Clock | null = null;
  path: Path | null = null;
  busy: Busy | null = null;

  private constructor(
    readonly number: number,
    readonly api: Api,
    readonly meta: Meta,
    readonly label: string,
    onTiles: () => void,
    onProblem: (problem: unknown) => void,
  ) {
    const top = meta.levels.max_level + 1;
    this.slices = new TileStore(api, "trace/tiles", sliceTile, top, onTiles, onProblem);
    this.counters = new TileStore(api, "trace/counters", counterTile, top, onTiles, onProblem);
  }

  static async open(
    number: number,
    api: Api,
    label: string,
    hear: { onTiles: () => void; onProblem: (problem: unknown) => void; onProgress: (progress: Progress) => void; signal: AbortSignal },
  ): Promise<Source> {
    const meta = await api.get<Meta>("trace/meta", {}, { onProgress: hear.onProgress, signal: hear.signal });
    return new Source(number, api, meta, label, hear.onTiles, hear.onProblem);
  }

  destroy(): void {
    this.slices.destroy();
    this.counters.destroy();
  }

  get place(): number {
    return this.offset + this.shift;
  }

  /** Names in pages; `onPage` after each, to paint them. */
  async loadNames(onPage: () => void, signal: AbortSignal): Promise<void> {
    while (this.names.length < this.meta.names) {
      const from = this.names.length;
      const page = await this.api.get<{ names: string[] }>(
        "trace/names", { from, to: Math.min(this.meta.names, from + NAMES_AT_ONCE) }, { signal },
      );
      if (!page.names.length) break;
      for (const name of page.names) this.names.push(name);
      onPage();
    }
  }

  /** Colours of all names; with a search, those that do not match step back. */
  paintNames(theme: Theme, matches: ((name: string) => boolean) | null): void {
    const count = Math.max(this.meta.names, this.names.length);
    const shades = new Uint32Array(count * SHADES);
    const light = new Uint8Array(count);
    const [br, bg, bb] = theme.lane;
    for (let i = 0; i < count; i++) {
      const name = this.names[i];
      const hex = name === undefined ? "#98a2b0" : colourOf(name);
      const faded = matches !== null && (name === undefined || !matches(name));
      const strength = faded ? 0.16 : 1;
      const r = parseInt(hex.slice(1, 3), 16);
      const g = parseInt(hex.slice(3, 5), 16);
      const b = parseInt(hex.slice(5, 7), 16);
      for (let s = 0; s < SHADES; s++) {
        const share = (0.4 + (0.6 * s) / (SHADES - 1)) * strength;
        const mix = (own: number, back: number): number => Math.round(back + (own - back) * share);
        shades[i * SHADES + s] = (0xff000000 | (mix(b, bb) << 16) | (mix(g, bg) << 8) | mix(r, br)) >>> 0;
      }
      const luminance = (own: number): number => ((own / 255) ** 2.2);
      const bright = 0.2126 * luminance(r) + 0.7152 * luminance(g) + 0.0722 * luminance(b);
      light[i] = faded ? 2 : bright < 0.24 ? 1 : 0;
    }
    this.shades = shades;
    this.lightText = light;
  }

  nameOf(id: number): string {
    return this.names[id] ?? "…";
  }
}
