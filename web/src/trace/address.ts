// SPDX-License-Identifier: Apache-2.0
// The timeline's part of the page's address: times in ns, tracks by key, slices by id (with the number of their capture).
//
// Other views open the timeline with `slice` (id), with `table` and `row`, with `t` (from_to) or with `find` (a search).

import type { Mark } from "./canvas/draw";

type Params = Readonly<Record<string, string>>;

export interface Address {
  readonly window: readonly [number, number] | null;
  readonly slice: { readonly source: number; readonly id: number } | null;
  readonly tableRow: { readonly table: string; readonly row: number } | null;
  readonly range: readonly [number, number] | null;
  readonly pins: readonly string[];
  readonly hidden: readonly string[];
  /** null: what is folded when nothing was chosen. */
  readonly folded: readonly string[] | null;
  readonly flows: readonly string[];
  readonly find: string;
  readonly findMode: string;
  readonly ranks: readonly string[];
  readonly shifts: ReadonlyMap<string, number>;
  readonly marks: readonly Mark[];
  readonly order: readonly string[];
  /** Whether the reader put the ranks of a large run on its common clock; those of a small one always are. */
  readonly byClock: boolean;
  readonly rowHeight: number | null;
  /** Where the tracks are scrolled to: the lane at the upper edge, and how much of it is above. */
  readonly scroll: { readonly lane: string; readonly above: number } | null;
}

const list = (text: string | undefined): string[] => (text ? text.split(",").map(decodeURIComponent).filter(Boolean) : []);

function pair(text: string | undefined): [number, number] | null {
  const ends = text?.split("_").map(Number) ?? [];
  return ends.length === 2 && ends.every(Number.isFinite) && ends[0]! < ends[1]! ? [ends[0]!, ends[1]!] : null;
}

function sliceOf(text: string | undefined): Address["slice"] {
  const parts = text?.split(":").map(Number) ?? [];
  if (!parts.length || !parts.every(Number.isSafeInteger)) return null;
  return parts.length === 1 ? { source: 0, id: parts[0]! } : { source: parts[0]!, id: parts[1]! };
}

function scrollOf(text: string | undefined): Address["scroll"] {
  const [lane, above] = text?.split("_") ?? [];
  return lane && Number.isFinite(Number(above)) ? { lane, above: Number(above) } : null;
}

export function readAddress(params: Params): Address {
  const row = Number(params["row"]);
  return {
    window: pair(params["t"]),
    slice: params["slice"] ? sliceOf(params["slice"]) : null,
    tableRow: params["table"] && Number.isSafeInteger(row) ? { table: params["table"], row } : null,
    range: pair(params["range"]),
    pins: list(params["pins"]),
    hidden: list(params["hide"]),
    folded: params["fold"] === undefined ? null : list(params["fold"]),
    flows: list(params["flows"]),
    find: params["find"] ?? "",
    findMode: params["findmode"] ?? "",
    ranks: list(params["ranks"]),
    shifts: new Map(list(params["shift"]).map((entry) => [entry.slice(0, entry.lastIndexOf("@")), Number(entry.slice(entry.lastIndexOf("@") + 1)) || 0])),
    order: list(params["order"]),
    byClock: params["clock"] === "1",
    rowHeight: Number(params["rowheight"]) >= 4 && Number(params["rowheight"]) <= 40 ? Math.floor(Number(params["rowheight"])) : null,
    scroll: scrollOf(params["y"]),
    marks: list(params["marks"]).flatMap((entry) => {
      const [from, to, colour, ...name] = entry.split("~");
      const at = Number(from);
      if (!Number.isFinite(at) || !/^#[0-9a-f]{6}$/.test(colour ?? "")) return [];
      return [{ from: at, to: to === "" ? null : Number(to), colour: colour!, name: name.join("~") }];
    }),
  };
}

const join = (entries: readonly string[]): string | null => (entries.length ? entries.map(encodeURIComponent).join(",") : null);

export function writeAddress(address: Address): Record<string, string | null> {
  const ends = (pairOf: readonly [number, number] | null): string | null => (pairOf ? pairOf.map((one) => Math.round(one)).join("_") : null);
  const slice = address.slice;
  return {
    t: ends(address.window),
    slice: slice ? (slice.source ? `${slice.source}:${slice.id}` : `${slice.id}`) : null,
    table: null,
    row: null,
    range: ends(address.range),
    pins: join(address.pins),
    hide: join(address.hidden),
    fold: address.folded === null ? null : (join(address.folded) ?? ""),
    flows: join(address.flows),
    find: address.find || null,
    findmode: address.findMode || null,
    ranks: join(address.ranks),
    shift: join([...address.shifts].filter(([, ns]) => ns !== 0).map(([worker, ns]) => `${worker}@${Math.round(ns)}`)),
    order: join(address.order),
    clock: address.byClock ? "1" : null,
    y: address.scroll ? `${address.scroll.lane}_${address.scroll.above}` : null,
    rowheight: address.rowHeight === null ? null : String(address.rowHeight),
    marks: join(address.marks.map((mark) => [Math.round(mark.from), mark.to === null ? "" : Math.round(mark.to), mark.colour, mark.name].join("~"))),
  };
}
