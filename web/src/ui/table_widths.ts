// SPDX-License-Identifier: Apache-2.0
// How wide a column has to be.

import { cellText, headingText } from "../format";
import type { Column, Row } from "./pages";

export const numeric = (column: Column): boolean => column.type === "int" || column.type === "float";

let pen: CanvasRenderingContext2D | null = null;

/** Width of a text in the table's own font. */
function textWidth(text: string, bold: boolean): number {
  pen ??= document.createElement("canvas").getContext("2d");
  if (!pen) return text.length * 7.5;
  const style = getComputedStyle(document.querySelector(".stepscope") ?? document.body);
  pen.font = `${bold ? "600 " : ""}${Number.parseFloat(style.fontSize) * 0.96}px ${style.fontFamily}`;
  return pen.measureText(text).width;
}

/** Width of a heading broken into two lines where that is shortest. */
function headingWidth(text: string): number {
  const words = text.split(" ");
  let best = textWidth(text, true);
  for (let cut = 1; cut < words.length; cut++) {
    best = Math.min(best, Math.max(textWidth(words.slice(0, cut).join(" "), true), textWidth(words.slice(cut).join(" "), true)));
  }
  return best;
}

/** Wide enough for the heading on two lines, for what the first rows hold, and for the sum. */
export function naturalWidth(column: Column, at: number, rows: readonly Row[], total: number | null | undefined): number {
  let longest = column.key === "call_stack" ? 124 : 0; // holds a button
  for (const row of rows.slice(0, 40)) longest = Math.max(longest, textWidth(cellText(row[at], column), false));
  if (total !== null && total !== undefined) longest = Math.max(longest, textWidth(cellText(total, column), true));
  const heading = headingWidth(headingText(column.name, column.unit)) + 38; // sign of the order included
  return Math.round(Math.max(64, Math.max(heading, Math.min(numeric(column) ? 190 : 360, longest + 26))));
}

/** What a row is about and the figures that decide, where those stand first. */
export function frontColumns(columns: readonly Column[], deciding: readonly string[] | undefined): readonly string[] {
  if (!deciding) return [];
  const name = columns.find((column) => column.name === "Name") ?? columns.find((column) => column.type === "text");
  return [name, ...columns.filter((column) => deciding.includes(column.name))].flatMap((column) => (column ? [column.key] : []));
}
