// SPDX-License-Identifier: Apache-2.0
// A ring with its legend; narrow places show the legend as bars instead.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { coloursOf, OTHER } from "../colour";
import { auto, middle, percent, timeText } from "../format";
import { t } from "../words";
import { ChartMenu, PlainTable } from "./chart_menu";
import { Card, LongName } from "./controls";
import { type Picture, themeColour, type Shape } from "./picture";

export interface PieItem {
  readonly name: string;
  readonly shapes?: string | null;
  readonly value: number;
}

export interface PieData {
  readonly key: string;
  readonly title: string;
  readonly total: number;
  readonly items: readonly PieItem[];
  readonly other: number;
}

const OUTER = 70;
const INNER = 44;

function ring(from: number, to: number, outer: number, inner: number): string {
  const full = to - from >= 0.99999;
  const end = full ? from + 0.99999 : to;
  const at = (turn: number, radius: number): string => {
    const angle = (turn - 0.25) * 2 * Math.PI;
    return `${(radius * Math.cos(angle)).toFixed(3)} ${(radius * Math.sin(angle)).toFixed(3)}`;
  };
  const large = end - from > 0.5 ? 1 : 0;
  return `M${at(from, outer)}A${outer} ${outer} 0 ${large} 1 ${at(end, outer)}L${at(end, inner)}A${inner} ${inner} 0 ${large} 0 ${at(from, inner)}Z`;
}

interface Slice {
  readonly label: string;
  readonly item: PieItem | null;
  readonly value: number;
  readonly colour: string;
  readonly rank: number;
}

function slicesOf(pie: PieData): Slice[] {
  const labels = pie.items.map((item) => (item.shapes ? `${item.name} ${item.shapes}` : item.name));
  const colours = coloursOf(labels);
  const slices: Slice[] = pie.items.map((item, at) => ({ label: labels[at]!, item, value: item.value, colour: colours[at]!, rank: at + 1 }));
  if (pie.other > 0) slices.push({ label: t("Other"), item: null, value: pie.other, colour: OTHER, rank: slices.length + 1 });
  return slices;
}

/** The picture's shapes around (0, 0), for the exports. */
function drawing(pie: PieData, slices: readonly Slice[]): Picture {
  const shown = slices.slice(0, 24);
  const height = Math.max(200, 60 + shown.length * 20);
  const shapes: Shape[] = [{ kind: "text", x: 20, y: 28, text: pie.title, fill: themeColour("text"), size: 15, bold: true }];
  const total = slices.reduce((sum, slice) => sum + slice.value, 0) || 1;
  let turn = 0;
  const centre = 110;
  for (const slice of slices) {
    const next = turn + slice.value / total;
    // Moved by hand: the list knows no transforms.
    shapes.push({ kind: "path", d: shift(ring(turn, next, OUTER, INNER), 95, centre + 15), fill: slice.colour, stroke: themeColour("surface"), width: 1 });
    turn = next;
  }
  shown.forEach((slice, at) => {
    const y = 58 + at * 20;
    shapes.push({ kind: "path", d: `M190 ${y - 9}h10v10h-10z`, fill: slice.colour });
    shapes.push({ kind: "text", x: 208, y, text: middle(slice.label, 48), fill: themeColour("text") });
    shapes.push({ kind: "text", x: 640, y, text: `${timeText(slice.value)}  ${percent(slice.value / total)}`, fill: themeColour("muted"), anchor: "end" });
  });
  return { width: 660, height, background: themeColour("surface"), shapes };
}

function shift(path: string, dx: number, dy: number): string {
  return path.replace(/([ML])(-?[\d.]+) (-?[\d.]+)/g, (_, c: string, x: string, y: string) => `${c}${Number(x) + dx} ${Number(y) + dy}`).replace(/(A[\d.]+ [\d.]+ 0 \d \d )(-?[\d.]+) (-?[\d.]+)/g, (_, head: string, x: string, y: string) => `${head}${Number(x) + dx} ${Number(y) + dy}`);
}

export function Pie(props: { pie: PieData; onPick?: (item: PieItem) => void; picked?: string }): JSX.Element {
  const { pie } = props;
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [over, setOver] = useState<string | null>(null);
  const [asTable, setAsTable] = useState(false);
  const slices = slicesOf(pie);
  const shown = slices.filter((slice) => !hidden.has(slice.label));
  const sum = shown.reduce((total, slice) => total + slice.value, 0);
  const whole = slices.reduce((total, slice) => total + slice.value, 0) || 1;
  const largest = slices.reduce((top, slice) => Math.max(top, slice.value), 0) || 1;
  let turn = 0;
  const pointed = over === null ? null : (slices.find((slice) => slice.label === over) ?? null);
  const rows = slices.map((slice) => [slice.label, slice.value, (slice.value / whole) * 100]);
  const tip = (slice: Slice): string => `${slice.label}\n${timeText(slice.value)} · ${t("share")} ${percent(slice.value / whole)} · ${t("rank")} ${slice.rank}`;
  return (
    <Card
      title={pie.title}
      class="pie-card"
      testid={`pie-${pie.key}`}
      tools={
        <ChartMenu name={pie.title} asTable={asTable} onTable={() => setAsTable(!asTable)} data={() => ({ columns: ["Name", pie.title, "Percentage (%)"], rows })} picture={() => drawing(pie, shown)} />
      }
    >
      {asTable ? (
        <PlainTable label={pie.title} columns={["Name", pie.title, "Percentage (%)"]} rows={rows} />
      ) : slices.length === 0 ? (
        <p class="hint pad">{t("No rows")}</p>
      ) : (
        <div class="pie">
          <svg class="pie-ring" viewBox="-72 -72 144 144" role="img" aria-label={`${pie.title}: ${slices.slice(0, 5).map((slice) => `${slice.label} ${percent(slice.value / whole)}`).join(", ")}`}>
            {shown.map((slice) => {
              const begin = turn;
              turn += sum ? slice.value / sum : 0;
              return (
                <path
                  key={slice.label}
                  d={ring(begin, turn, over === slice.label ? OUTER + 2 : OUTER, INNER)}
                  fill={slice.colour}
                  class={`pie-slice${over !== null && over !== slice.label ? " faded" : ""}${props.onPick && slice.item ? " pick" : ""}`}
                  onMouseEnter={() => setOver(slice.label)}
                  onMouseLeave={() => setOver(null)}
                  onClick={() => slice.item && props.onPick?.(slice.item)}
                >
                  <title>{tip(slice)}</title>
                </path>
              );
            })}
            <text class="pie-main" y={pointed ? -4 : -1} text-anchor="middle">{pointed ? percent(pointed.value / whole) : auto(sum, "us")}</text>
            <text class="pie-sub" y="14" text-anchor="middle">{pointed ? auto(pointed.value, "us") : t("Total")}</text>
          </svg>
          <ul class="legend">
            {slices.map((slice) => (
              <li key={slice.label} class={hidden.has(slice.label) ? "off" : ""}>
                <button
                  type="button"
                  title={tip(slice)}
                  aria-pressed={!hidden.has(slice.label)}
                  onMouseEnter={() => setOver(slice.label)}
                  onMouseLeave={() => setOver(null)}
                  onFocus={() => setOver(slice.label)}
                  onBlur={() => setOver(null)}
                  onClick={() => {
                    const next = new Set(hidden);
                    if (!next.delete(slice.label)) next.add(slice.label);
                    setHidden(next);
                  }}
                >
                  <i class="swatch" style={{ background: slice.colour }} />
                  <span class="legend-name"><LongName text={slice.label} /></span>
                  <span class="legend-share" data-value={slice.value}>{percent(slice.value / whole)}</span>
                  <i class="legend-bar" style={{ width: `${(slice.value / largest) * 100}%`, background: slice.colour }} />
                </button>
              </li>
            ))}
          </ul>
        </div>
      )}
    </Card>
  );
}
