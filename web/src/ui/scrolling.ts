// SPDX-License-Identifier: Apache-2.0
// Which rows of a very long table are in view. Rows have one height; opened rows have an extra part below them.

export const ROW = 30;
/** Browsers stop counting somewhere above 16 million pixels; longer tables scroll in larger steps. */
export const TALLEST = 12_000_000;

export type Opened = readonly (readonly [row: number, height: number])[];

export const contentHeight = (rows: number, opened: Opened): number => rows * ROW + opened.reduce((sum, [, height]) => sum + height, 0);

/** Top of a row; `opened` in order of rows. */
export function topOf(row: number, opened: Opened): number {
  let y = row * ROW;
  for (const [at, height] of opened) if (at < row) y += height;
  return y;
}

/** Row at a height; inside an opened part it is the row that the part belongs to. */
export function rowAt(y: number, opened: Opened): number {
  let extra = 0;
  for (const [at, height] of opened) {
    const begin = (at + 1) * ROW + extra;
    if (y < begin) break;
    if (y < begin + height) return at;
    extra += height;
  }
  return Math.floor((y - extra) / ROW);
}
