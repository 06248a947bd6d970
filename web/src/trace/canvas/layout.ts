// SPDX-License-Identifier: Apache-2.0
// Which lanes there are and where: rank, process, track, with folds, pins, hidden tracks and the filter applied.
// Lengths are CSS pixels.

import type { Process, Track } from "../data/model";
import type { Source } from "../data/source";

export const ROW = 18;
const GROUP = 24;
const GAP = 5;
const MINI = 20;
const COUNTER = 44;
const PATH = 24;
const PATH_UNASKED = 300_000; // slices of which the server computes the path unasked
/** The answer first: what the device did, then the host, then what is measured beside. */
const GROUPS = ["overlap", "device", "communication", "host", "counters"];

export interface Lane {
  readonly kind: "rank" | "path" | "process" | "slices" | "counter";
  /** Stands for the lane in the address and in the sets below: `0`, `0.p3`, `0.t12`. */
  readonly key: string;
  readonly source: Source;
  readonly process: Process | null;
  readonly track: Track | null;
  readonly label: string;
  readonly folded: boolean;
  readonly pinned: boolean;
  readonly height: number;
  /** From the top of the pinned part, or of the scrolled part. */
  readonly y: number;
  /** Rows that are drawn one below the other, or those whose density is drawn (a folded process). */
  readonly rows: readonly number[];
  readonly rowHeight: number;
  /** Tracks below a process. */
  readonly tracks: number;
}

export interface Choice {
  readonly folded: ReadonlySet<string>;
  readonly hidden: ReadonlySet<string>;
  readonly pinned: readonly string[];
  readonly filter: string;
  /** Keys of processes and tracks that were moved, with all their neighbours. */
  readonly order: readonly string[];
  /** Of a row of slices that is not folded. */
  readonly rowHeight: number;
}

export interface Layout {
  readonly lanes: readonly Lane[];
  readonly pinned: readonly Lane[];
  readonly pinnedHeight: number;
  readonly height: number;
  readonly byTrack: ReadonlyMap<string, Lane>;
  /** Headings of ranks and processes, from the top. */
  readonly groups: readonly Lane[];
}

export const trackKey = (source: Source, track: number): string => `${source.number}.t${track}`;
export const processKey = (source: Source, process: number): string => `${source.number}.p${process}`;

export const pathKey = (source: Source): string => `${source.number}.path`;

/** While the path is on its way its lane is there already: nothing is to move under the reader's pointer. */
function hasPath(source: Source): boolean {
  if (source.path) return (source.path.pieces?.start.length ?? 0) > 0;
  return source.meta.slices <= PATH_UNASKED && source.meta.processes.some((process) => process.group === "device");
}

/** Processes by what they stand for, otherwise in the server's order. */
export const byGroup = (processes: readonly Process[]): readonly Process[] => [...processes].sort((a, b) => GROUPS.indexOf(a.group) - GROUPS.indexOf(b.group));

/** Tracks of a process in the server's order, those without anything left out. */
export function tracksOf(source: Source): Map<number, Track[]> {
  const found = new Map<number, Track[]>();
  for (const track of source.meta.tracks) {
    const own = found.get(track.process);
    if (own) own.push(track);
    else found.set(track.process, [track]);
  }
  return found;
}

export function arrange(sources: readonly Source[], choice: Choice): Layout {
  const filter = choice.filter.trim().toLowerCase();
  const pins = new Set(choice.pinned);
  const position = new Map(choice.order.map((key, i) => [key, i]));
  const lanes: Lane[] = [];
  const byTrack = new Map<string, Lane>();
  const pinnedLanes = new Map<string, Lane>();
  let y = 0;
  const add = (lane: Omit<Lane, "y">): void => {
    const placed = { ...lane, y };
    lanes.push(placed);
    y += lane.height;
    if (lane.track) byTrack.set(lane.key, placed);
  };
  for (const source of sources) {
    const rankFolded = choice.folded.has(`${source.number}`);
    if (sources.length > 1)
      add({ kind: "rank", key: `${source.number}`, source, process: null, track: null, label: source.label, folded: rankFolded,
        pinned: false, height: GROUP + 2, rows: [], rowHeight: 0, tracks: 0 });
    if (hasPath(source) && !rankFolded && !filter && !choice.hidden.has(pathKey(source)))
      add({ kind: "path", key: pathKey(source), source, process: null, track: null, label: "Critical path", folded: false, pinned: false, height: PATH, rows: [],
        rowHeight: PATH - 6, tracks: 0 });
    const tracks = tracksOf(source);
    for (const process of sorted(byGroup(source.meta.processes), (one) => position.get(processKey(source, one.id)))) {
      const own = sorted(tracks.get(process.id) ?? [], (one) => position.get(trackKey(source, one.id)));
      const key = processKey(source, process.id);
      if (!own.length || choice.hidden.has(key)) continue;
      for (const track of own)
        if (pins.has(trackKey(source, track.id))) pinnedLanes.set(trackKey(source, track.id), trackLane(source, process, track, choice, true));
      if (rankFolded) continue;
      const whole = !filter || process.name.toLowerCase().includes(filter);
      const shown = own.filter((track) => {
        const itsKey = trackKey(source, track.id);
        return !choice.hidden.has(itsKey) && !pins.has(itsKey) && (whole || track.label.toLowerCase().includes(filter));
      });
      if (!shown.length) continue;
      const folded = choice.folded.has(key);
      const outer = shown.flatMap((track) => (track.rows?.length ? [track.rows[0]!] : []));
      add({ kind: "process", key, source, process, track: null, label: process.name, folded, pinned: false, height: GROUP,
        rows: folded ? outer : [], rowHeight: 0, tracks: shown.length });
      if (!folded) for (const track of shown) add(trackLane(source, process, track, choice, false));
    }
  }
  let top = 0;
  const pinned: Lane[] = [];
  for (const key of choice.pinned) {
    const lane = pinnedLanes.get(key);
    if (!lane) continue;
    const placed = { ...lane, y: top };
    pinned.push(placed);
    byTrack.set(key, placed);
    top += lane.height;
  }
  const groups = lanes.filter((lane) => lane.kind === "rank" || lane.kind === "process");
  return { lanes, pinned, pinnedHeight: top, height: y, byTrack, groups };
}

/** Those that have a position, by it; the others after them as they were. */
function sorted<T>(entries: readonly T[], position: (entry: T) => number | undefined): readonly T[] {
  if (!entries.some((entry) => position(entry) !== undefined)) return entries;
  return [...entries].sort((a, b) => (position(a) ?? Infinity) - (position(b) ?? Infinity) || 0);
}

function trackLane(source: Source, process: Process, track: Track, choice: Choice, pinned: boolean): Lane {
  const key = trackKey(source, track.id);
  const folded = choice.folded.has(key);
  const rows = track.rows ?? [];
  const base = { key, source, process, track, label: track.label, folded, pinned, y: 0, tracks: 1 };
  if (track.kind === "counter") return { ...base, kind: "counter", height: folded ? MINI : COUNTER, rows: [], rowHeight: folded ? MINI - 4 : COUNTER - 6 };
  const rowHeight = folded ? Math.max(1, Math.min(ROW, Math.floor((MINI - GAP) / rows.length))) : Math.max(choice.rowHeight, Math.min(ROW, Math.floor((MINI - GAP) / rows.length)));
  return { ...base, kind: "slices", height: Math.max(MINI, rows.length * rowHeight + GAP), rows, rowHeight };
}

/** The lanes that touch [top, bottom) of the scrolled part; lanes are sorted by y. */
export function lanesBetween(lanes: readonly Lane[], top: number, bottom: number): readonly Lane[] {
  let low = 0;
  let high = lanes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lanes[middle]!.y + lanes[middle]!.height <= top) low = middle + 1;
    else high = middle;
  }
  let end = low;
  while (end < lanes.length && lanes[end]!.y < bottom) end++;
  return lanes.slice(low, end);
}
