// SPDX-License-Identifier: Apache-2.0
// What stands beside the slices of a window: how busy each track is, and the critical path. Asked for when the reader rests.

import type { Busy, Path } from "./model";
import type { Source } from "./source";

const RESTED_MS = 220;

/** Captures in one timeline of which all are asked for what a few need; of more, those in view. */
export const MANY_SOURCES = 8;

/** All, or so many of them evenly, the first among them. */
export function spread<T>(all: readonly T[], most: number): readonly T[] {
  const by = Math.ceil(all.length / most);
  return all.filter((_, at) => at % by === 0);
}

export class Summary {
  private timer = 0;
  private key = "";
  private readonly known = new WeakMap<Source, string>(); // the window that a source was asked for
  private readonly stop = new AbortController();

  constructor(private readonly sources: () => readonly Source[], private readonly arrived: (lanes: boolean) => void) {}

  destroy(): void {
    this.stop.abort();
    clearTimeout(this.timer);
  }

  /** The window may have moved. */
  ask(from: number, to: number, width: number): void {
    const key = `${Math.round(from)} ${Math.round(to)} ${width} ${this.sources().map((source) => `${source.number}@${source.place}`).join()}`;
    if (key === this.key) return;
    this.key = key;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.load(key, from, to, width), RESTED_MS);
  }

  private async load(key: string, from: number, to: number, width: number): Promise<void> {
    const about = (source: Source): string => `${Math.round(from)} ${Math.round(to)} ${width} ${source.place}`;
    for (const source of this.sources()) {
      if (this.known.get(source) === about(source)) continue;
      const window = { from: Math.max(0, Math.floor(from - source.place)), to: Math.max(0, Math.ceil(to - source.place)) };
      try {
        source.busy = await source.api.get<Busy>("trace/busy", window, { signal: this.stop.signal });
        if (key !== this.key) return;
        this.arrived(false);
        const shown = source.path === null || (source.path.pieces?.start.length ?? 0) > 0;
        source.path = await source.api.get<Path>("trace/path", { ...window, px: width }, { signal: this.stop.signal });
        if (key !== this.key) return;
        this.known.set(source, about(source));
        this.arrived(!shown || !source.path.pieces?.start.length);
      } catch {
        return; // a picture without its summary is still a picture
      }
    }
  }
}
