// SPDX-License-Identifier: Apache-2.0
// Line icons, 16 px.

import type { JSX } from "preact";

const PATHS = {
  menu: "M3 8h.01M8 8h.01M13 8h.01",
  filter: "M2 3h12l-4.6 5.4V13l-2.8-1.6v-3z",
  columns: "M2.5 3h11v10h-11zM6.2 3v10M9.8 3v10",
  download: "M8 2v8m0 0L4.8 6.8M8 10l3.2-3.2M3 13.5h10",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  link: "M6.5 9.5l3-3M7 4.5l1.3-1.3a2.9 2.9 0 0 1 4.1 4.1L11.1 8.6M9 11.5l-1.3 1.3a2.9 2.9 0 0 1-4.1-4.1L4.9 7.4",
  help: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM6.3 6.4a1.8 1.8 0 1 1 2.6 1.6c-.6.3-.9.6-.9 1.2M8 11.3h.01",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M3.4 12.6l.7-.7M11.9 4.1l.7-.7",
  moon: "M13 9.6A5.5 5.5 0 0 1 6.4 3a5.5 5.5 0 1 0 6.6 6.6z",
  screen: "M2 3h12v8H2zM6 14h4M8 11v3",
  refresh: "M13 8a5 5 0 1 1-1.5-3.6M13 2v3h-3",
  left: "M10 3.5L5.5 8l4.5 4.5",
  right: "M6 3.5L10.5 8 6 12.5",
  down: "M3.5 6L8 10.5 12.5 6",
  up: "M3.5 10L8 5.5 12.5 10",
  close: "M4 4l8 8M12 4l-8 8",
  trace: "M2 4h6M5 8h8M3 12h5",
  pin: "M6 2h4l-.5 4.5L12 9H4l2.5-2.5zM8 9v5",
  panel: "M2.5 3h11v10h-11zM6.5 3v10",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.6 10.6L14 14",
  swap: "M4 6h8.5M10 3.5L12.5 6 10 8.5M12 10.5H3.5M6 8L3.5 10.5 6 13",
  verdict: "M3 8.5l3.2 3.2L13 4.5",
  ranks: "M2.5 3.5h11M2.5 8h11M2.5 12.5h11M5 2v3M10 6.5v3M7 11v3",
  overview: "M2.5 2.5h4.7v4.7H2.5zM8.8 2.5h4.7v4.7H8.8zM2.5 8.8h4.7v4.7H2.5zM8.8 8.8h4.7v4.7H8.8z",
  operator: "M3 4.5h10M3 8h10M3 11.5h6",
  chip: "M4.5 4.5h7v7h-7zM6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14",
  memory: "M2 12V8h3V5h3V3h3v4h3v5z",
  spread: "M8 3.5v3M8 6.5L4 10M8 6.5l4 3.5M8 2a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3zM4 10a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3zM12 10a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3z",
  matrix: "M2.5 2.5h11v11h-11zM2.5 6.2h11M2.5 9.8h11M6.2 2.5v11M9.8 2.5v11",
  module: "M8 1.8l5.5 3v6.4L8 14.2l-5.5-3V4.8zM2.5 4.8L8 8l5.5-3.2M8 8v6.2",
  flame: "M2 13h12M2 9.8h9M2 6.6h5.5M2 3.4h3",
  code: "M5.5 4.5L2 8l3.5 3.5M10.5 4.5L14 8l-3.5 3.5",
  roof: "M2 13L7.5 5H14M2 2v12h12",
  bulb: "M5.5 10.5a4 4 0 1 1 5 0V12h-5zM6.5 14h3",
  file: "M4 2h5.5L12.5 5v9H4zM9.5 2v3h3",
  alert: "M8 2.5l6 11H2zM8 6.5v3.2M8 11.7h.01",
} as const;

export type IconName = keyof typeof PATHS;

export const VIEW_ICONS: Readonly<Record<string, IconName>> = {
  verdict: "verdict", cluster: "ranks", overview: "overview", operator: "operator", kernel: "chip", trace: "trace", memory: "memory", distributed: "spread", communication: "matrix",
  module: "module", flame: "flame", source: "code", roofline: "roof", findings: "bulb", files: "file",
};

export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" />
    </svg>
  );
}
