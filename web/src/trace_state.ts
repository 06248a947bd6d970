// SPDX-License-Identifier: Apache-2.0
// What the shell and the Trace view tell each other.

/** What the shell hands to the timeline; a new object on every change. */
export interface TraceState {
  /** The timeline's own part of the page's address (time window, slice, pins …); all strings, as in the URL. */
  readonly params: Readonly<Record<string, string>>;
  /** Writes the timeline's part of the address; null removes a key. Does not cause an update() by itself. */
  readonly setParams: (changes: Readonly<Record<string, string | null>>) => void;
  /** Opens another view, with parameters: `open("operator", { q: "aten::mm" })`. */
  readonly open: (view: string, params: Readonly<Record<string, string>>) => void;
  readonly dark: boolean;
  readonly language: "en" | "zh";
  /** Captures that can stand in the timeline: of the same run, or the two of a comparison (which then have a label). */
  readonly workers: readonly { readonly run: string; readonly worker: string; readonly span: string; readonly version: string | null; readonly label?: string }[];
  /** Captures of different times: their first steps stand below each other, whatever their clocks say. */
  readonly together?: boolean;
}

export interface TraceHandle {
  update(state: TraceState): void;
  destroy(): void;
}

export type MountTrace = (host: HTMLElement, api: import("./api").Api, state: TraceState) => TraceHandle;
