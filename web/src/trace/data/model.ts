// SPDX-License-Identifier: Apache-2.0
// What the server says about a timeline (docs/http_api.md, Trace). Times are ns since the first event of the capture.

export interface Process {
  readonly id: number;
  readonly name: string;
  readonly badge: string | null;
  readonly label: string | null;
  readonly rank: number | null;
  readonly pid: number | null;
  /** What its tracks are: the order and the folds that the page begins with follow from it. */
  readonly group: "overlap" | "device" | "communication" | "host" | "counters";
}

export interface Track {
  readonly id: number;
  readonly process: number;
  readonly kind: "slice" | "counter";
  readonly label: string;
  readonly rows?: readonly number[];
  readonly slices?: number;
  readonly overlapping?: number;
  readonly series?: string;
  readonly unit?: string | null;
  readonly samples?: number;
  readonly min?: number | null;
  readonly max?: number | null;
}

export interface Row {
  readonly id: number;
  readonly track: number;
  readonly depth: number;
  readonly slices: number;
  readonly first_ns: number;
  readonly last_ns: number;
}

export interface Step {
  readonly step: number;
  readonly start_ns: number;
  readonly end_ns: number;
  readonly device_end_ns?: number | null;
}

/** Shares of a window in which a track or a process has a slice; null where it has none to count. */
export interface Busy {
  readonly tracks: readonly (number | null)[];
  readonly processes: readonly (number | null)[];
}

/** What the end of the run depended on; null where that is not known yet. */
export interface Path {
  readonly pieces: { readonly start: readonly number[]; readonly end: readonly number[]; readonly kind: readonly string[]; readonly id: readonly (number | null)[] } | null;
  readonly shares: Readonly<Record<string, number>>;
  /** Idle time of the device with the family of its cause. */
  readonly gaps?: { readonly start: readonly number[]; readonly end: readonly number[]; readonly kind: readonly string[] } | null;
}

export interface Meta {
  readonly base_ns: string;
  readonly length_ns: number;
  readonly raw_start_us: string;
  readonly processes: readonly Process[];
  readonly tracks: readonly Track[];
  readonly rows: readonly Row[];
  readonly names: number;
  readonly slices: number;
  readonly overlapping: number;
  readonly counters: number;
  readonly flows: readonly { readonly category: string; readonly count: number }[];
  readonly steps: readonly Step[];
  readonly levels: { readonly bins: number; readonly exact: number; readonly max_level: number };
}

/** A slice in a list. */
export interface Brief {
  readonly id: number;
  readonly name: string;
  readonly track: number;
  readonly row: number;
  readonly start_ns: number;
  readonly duration_ns: number;
}

export interface Frame {
  readonly text: string;
  readonly file: string | null;
  readonly line: number | null;
  readonly function: string | null;
}

export interface FlowEnd {
  readonly category: string;
  readonly direction: "in" | "out";
  readonly id: number | null;
  readonly name: string | null;
  readonly track: number | null;
  readonly row?: number | null;
  readonly start_ns: number;
  readonly duration_ns?: number;
}

export interface Detail extends Brief {
  readonly self_ns: number;
  /** Of free time: why the device was idle. */
  readonly cause?: Cause | null;
  /** The operator that the slice is, or that launched it, and where the program called it. */
  readonly origin?: { readonly operator: string; readonly id: number | null; readonly line: string | null; readonly module: string | null } | null;
  readonly raw_start_us: string;
  readonly step: number | null;
  readonly step_share: number | null;
  readonly table: string;
  readonly table_row: number;
  readonly args: Readonly<Record<string, unknown>>;
  readonly stack: readonly Frame[];
  readonly parent: Brief | null;
  readonly children: readonly Brief[];
  readonly children_count: number;
  readonly flows: readonly FlowEnd[];
  readonly kernels: readonly Brief[];
  readonly links: {
    readonly operator: string | null;
    readonly kernel: string | null;
    readonly memory: number | null;
    readonly communication?: string | null;
  };
}

export interface Arrows {
  readonly count: number;
  readonly thinned: boolean;
  readonly category: readonly string[];
  readonly arrows: {
    readonly category: readonly number[];
    readonly from_ns: readonly number[];
    readonly from_track: readonly (number | null)[];
    readonly from_row: readonly (number | null)[];
    readonly from_id: readonly (number | null)[];
    readonly to_ns: readonly number[];
    readonly to_track: readonly (number | null)[];
    readonly to_row: readonly (number | null)[];
    readonly to_id: readonly (number | null)[];
  };
}

export interface Found {
  readonly count: number;
  readonly names: number;
  readonly hits: readonly Brief[];
  readonly density: { readonly from: number; readonly to: number; readonly counts: readonly number[] };
}

export interface RangeTable {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly [string, number, number, number, number, number, number])[];
  readonly name_ids?: readonly number[];
  readonly tracks?: readonly number[];
  readonly total: number;
  readonly slices: number;
}

export interface RangeSlices {
  readonly total: number;
  readonly ids: readonly number[];
  readonly start_ns: readonly number[];
  readonly duration_ns: readonly number[];
  readonly track: readonly number[];
}

type Texts = Readonly<Record<"en" | "zh", string>>;

export interface Cause {
  readonly why: Texts;
  readonly parts: readonly { readonly part: string; readonly name: Texts; readonly ns: number }[];
  readonly operators: readonly { readonly name: string; readonly ns: number; readonly id: number | null }[];
  readonly ended_by: { readonly name: string; readonly id: number | null; readonly issue: number | null; readonly launch: number | null; readonly start: number | null } | null;
  readonly place: { readonly line: string; readonly innermost: string; readonly modules: readonly string[] } | null;
  readonly alike: { readonly count: number; readonly ns: number; readonly longest: readonly { readonly id: number; readonly start_ns: number; readonly ns: number }[] } | null;
  /** Ranks that a collective waited for, the latest first; their numbers are those of the run where `global`. */
  readonly late: readonly { readonly rank: number; readonly ns: number; readonly id: number | null }[];
  readonly global: boolean;
}
