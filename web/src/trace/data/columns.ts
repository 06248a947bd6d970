// SPDX-License-Identifier: Apache-2.0
// Columns of numbers as bytes, `application/x-cols`: frames of little-endian columns behind a JSON header.

type Column = Float64Array | Float32Array | Uint32Array;

/** The columns of one frame. u64 columns stay pairs of words (low, high): most are never looked at. */
export interface Columns {
  readonly n: number;
  readonly bytes: number;
  readonly columns: Readonly<Record<string, Column>>;
}

const MAGIC = 0x534c4f43; // "COLS"
const SIZE: Readonly<Record<string, number>> = { f64: 8, u64: 8, i64: 8, f32: 4, u32: 4, i32: 4 };

export function readColumns(buffer: ArrayBuffer): Columns[] {
  const view = new DataView(buffer);
  if (buffer.byteLength < 8 || view.getUint32(0, true) !== MAGIC) throw new Error("The server's answer is not an x-cols frame");
  const length = view.getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length))) as {
    frames: { n: number; cols: [string, string][] }[];
  };
  let at = padded(8 + length);
  return header.frames.map(({ n, cols }) => {
    const begin = at;
    const places = cols.map(([name, type]) => {
      const place = at - begin;
      at += padded(n * (SIZE[type] ?? 8));
      return [name, type, place] as const;
    });
    // A copy of its own per tile, so that throwing one tile away frees it.
    const own = buffer.slice(begin, at);
    const columns: Record<string, Column> = {};
    for (const [name, type, place] of places) {
      if (type === "f64") columns[name] = new Float64Array(own, place, n);
      else if (type === "f32") columns[name] = new Float32Array(own, place, n);
      else columns[name] = new Uint32Array(own, place, type === "u64" || type === "i64" ? 2 * n : n);
    }
    return { n, bytes: own.byteLength, columns };
  });
}

const padded = (size: number): number => (size + 7) & ~7;
