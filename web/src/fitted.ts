// SPDX-License-Identifier: Apache-2.0
// Names on canvases: what has no room ends with three dots, and never stands out of its box.

/** The text, or as many of its letters as fit with three dots; nothing if fewer than `least` do. */
export function fitted(measure: (text: string) => number, text: string, room: number, least: number): string {
  const width = measure(text);
  if (width <= room) return text;
  // Letters differ in width: the mean only says where to begin.
  let letters = Math.floor((text.length * room) / width);
  while (letters >= least && measure(`${text.slice(0, letters)}…`) > room) letters--;
  return letters >= least ? `${text.slice(0, letters)}…` : "";
}
