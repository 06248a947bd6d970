// SPDX-License-Identifier: Apache-2.0
// Clocks of the ranks of a run, as the analysis of the whole run aligned them (docs/http_api.md, GET cluster).

import type { Api, CaptureRef } from "../../api";

/** Against the first rank that is shown, in ns: `offset` is how far a clock is ahead; null where it could not be aligned. */
export interface Clock {
  readonly offset: number | null;
  readonly sigma: number;
  /** Whether the others are told against this one. */
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
export async function clocksOf(api: Api, signal: AbortSignal): Promise<(capture: Capture) => Row | undefined> {
  const { clocks, ranks } = await api.get<Run>("cluster", {}, { signal });
  const byRank = new Map(clocks.map((row) => [row.rank, row]));
  const key = (worker: string | null, span: string | null): string => JSON.stringify([worker, span]);
  const byCapture = new Map(ranks.map(({ rank, worker, span }) => [key(worker, span), byRank.get(rank)]));
  return ({ worker, span }) => byCapture.get(key(worker, span));
}

/** One clock against another; both may be uncertain. */
export function between(first: Row | undefined, own: Row | undefined, reference: boolean): Clock | null {
  if (!first || !own) return null;
  if (first.offset_ns === null || own.offset_ns === null) return { offset: null, sigma: 0, reference: false };
  return { offset: own.offset_ns - first.offset_ns, sigma: Math.hypot(own.sigma_ns ?? 0, first.sigma_ns ?? 0), reference };
}
