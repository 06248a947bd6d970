// SPDX-License-Identifier: Apache-2.0
// Clocks of the ranks of a run, as the analysis of the whole run aligned them (docs/http_api.md, GET cluster).

import type { Api, CaptureRef } from "../../api";
import type { Source } from "./source";

/** Against the first rank that is shown, in ns: `offset` is how far a clock is ahead; null where it could not be aligned. */
export interface Clock {
  readonly offset: number | null;
  readonly sigma: number;
  /** Whether the offsets of the others are relative to this one. */
  readonly reference: boolean;
}

interface Row {
  readonly rank: number;
  readonly offset_ns: number | null;
  readonly sigma_ns: number | null;
  readonly refused: boolean;
}

interface Run {
  readonly clocks: readonly Row[];
  readonly ranks: readonly { readonly rank: number; readonly worker: string | null; readonly span: string | null }[];
}

type Capture = Pick<CaptureRef, "worker" | "span">;
/** The clock of each capture of the run; undefined for one that the analysis does not know. */
export type Clocks = (capture: Capture) => Row | undefined;

export async function clocksOf(api: Api, signal: AbortSignal): Promise<Clocks> {
  const { clocks, ranks } = await api.get<Run>("cluster", {}, { signal });
  const byRank = new Map(clocks.map((row) => [row.rank, row]));
  const key = (worker: string | null, span: string | null): string => JSON.stringify([worker, span]);
  const byCapture = new Map(ranks.map(({ rank, worker, span }) => [key(worker, span), byRank.get(rank)]));
  return ({ worker, span }) => byCapture.get(key(worker, span));
}

/** How far a capture stands behind the first one by their own clocks; captures of different times have their first steps below each other. */
export function offsetOf(source: Source, first: Source, together: boolean): number {
  if (!together) return Number(BigInt(source.meta.base_ns) - BigInt(first.meta.base_ns));
  const begin = (one: Source): number => one.meta.steps[0]?.start_ns ?? 0;
  return begin(first) - begin(source);
}

/**
 * Puts captures on the common clock of their run; one whose clock could not be aligned stays where its own puts it. `asked` has the shifts
 * from before the clocks were known: when the reader has moved one of these captures since, all of them stay as they stand now.
 */
export function align(sources: readonly Source[], clocks: Clocks, asked: ReadonlyMap<Source, number>): void {
  const moved = sources.some((source) => asked.has(source) && source.shift !== 0 && source.shift !== asked.get(source));
  const first = sources[0]!;
  for (const source of sources) {
    const before = source.place;
    source.clock = between(clocks(first.api.capture), clocks(source.api.capture), source === first);
    source.offset = offsetOf(source, first, false) - (source.clock?.offset ?? 0);
    if (moved && asked.has(source)) source.shift += before - source.place;
  }
}

/** One clock against another; both may be uncertain. */
function between(first: Row | undefined, own: Row | undefined, reference: boolean): Clock | null {
  if (!first || !own) return null;
  if (first.offset_ns === null || own.offset_ns === null) return { offset: null, sigma: 0, reference: false };
  return { offset: own.offset_ns - first.offset_ns, sigma: Math.hypot(own.sigma_ns ?? 0, first.sigma_ns ?? 0), reference };
}
