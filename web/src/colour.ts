// SPDX-License-Identifier: Apache-2.0
// One colour per name, everywhere the same; categories that people know have a fixed one.

// Mid lightness so that they stand on white and on near-black; neighbours differ in lightness too, for eyes that mix hues.
export const PALETTE = [
  "#3b6fd4", "#e8833a", "#2a9d8f", "#c8476b", "#8a63d2", "#d4a72c", "#4db6e2", "#7a9a3a",
  "#b0648f", "#5f7f9f", "#a45b2a", "#57c08a", "#f09a9a", "#2f5fa3", "#b9a3e8", "#8f8f3d",
  "#e05cc0", "#2f8d5f", "#e8bd6a", "#62c4c0", "#a8434e", "#8fabd6", "#7d5aa6", "#a9c24a",
] as const;

export const OTHER = "#8a94a2";

const FIXED: Readonly<Record<string, string>> = {
  Computing: "#2f63c8",
  Computation: "#2f63c8",
  Kernel: "#2f63c8",
  Overlapped: "#bd94e9",
  Overlapping: "#bd94e9",
  Communication: "#c65a14",
  "Communication(Not Overlapped)": "#c65a14",
  Free: "#c3cad4",
  Other: OTHER,
  Bubble: "#e92764",
  Preparing: "#e9c03c",
  Stage: "#a2dab8",
  DataLoader: "#d47058",
  Runtime: "#36d99f",
  "CPU Exec": "#a6e08c",
  Memcpy: "#62b5ea",
  Memset: "#882066",
  "Data Transfer Time": "#2f63c8",
  "Synchronizing Time": "#e9c03c",
  "Wait (other)": "#a34a10",
  Idle: "#c3cad4",
  "Allocated (MB)": "#3b6fd4",
  "Reserved (MB)": "#e8833a",
  "Active (MB)": "#57c08a",
  Baseline: "#5f7f9f",
  Experiment: "#e8833a",
};

/** Place of a name in the palette (FNV-1a, so the server and other pages can agree). */
export function colourIndex(name: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return (hash >>> 0) % PALETTE.length;
}

export function colourOf(name: string): string {
  return FIXED[name] ?? PALETTE[colourIndex(name)]!;
}

/** Colours of one chart: each name's own, moved on only when an entry before it has it already. */
export function coloursOf(names: readonly string[]): string[] {
  const used = new Set<string>();
  return names.map((name) => {
    const fixed = FIXED[name];
    if (fixed) return fixed;
    let at = colourIndex(name);
    for (let tries = 0; tries < PALETTE.length && used.has(PALETTE[at]!); tries++) at = (at + 7) % PALETTE.length;
    used.add(PALETTE[at]!);
    return PALETTE[at]!;
  });
}

/** Colour for a share between 0 and 1, from pale to strong; for heat maps. */
export function heat(share: number, darkTheme: boolean): string {
  const s = Math.max(0, Math.min(1, share));
  const from = darkTheme ? [30, 40, 58] : [232, 240, 252];
  const to = darkTheme ? [122, 162, 255] : [23, 63, 180];
  const mix = from.map((low, i) => Math.round(low + (to[i]! - low) * s));
  return `rgb(${mix.join(" ")})`;
}
