// SPDX-License-Identifier: Apache-2.0
// Roofline: counted operators by operations per byte and per second, below what the chip can do at best.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { coloursOf } from "../colour";
import { auto, whole } from "../format";
import { openView } from "../state";
import { Card } from "../ui/controls";
import { useLoad } from "../ui/load";
import { Await } from "../ui/messages";
import { t } from "../words";
import { Frame, type ViewProps } from "./view";

interface Point {
  readonly name: string;
  readonly dtype: string;
  readonly calls: number;
  readonly flops: number;
  readonly bytes: number | null;
  readonly inputs_only: boolean;
  readonly time_us: number;
  readonly gflops: number;
  readonly intensity: number | null;
}

interface Roofline {
  readonly on_device: boolean;
  readonly simulated: boolean;
  readonly chip: { readonly name: string; readonly bandwidth_gb_s: number | null; readonly peak_tflops: Readonly<Record<string, number>> } | null;
  readonly count: number;
  readonly rows: readonly Point[];
}

const [WIDE, TALL, LEFT, BOTTOM, TOP, RIGHT] = [860, 360, 64, 34, 14, 16];
const ALIASES: Readonly<Record<string, string>> = { float: "float32", half: "float16", bf16: "bfloat16", dt_bf16: "bfloat16" };

function decades(low: number, high: number): number[] {
  const found: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) found.push(10 ** power);
  return found;
}

/** A number with T, G, M or K, so that few operations are not shown as none; the letter stands before what follows. */
function scaled(value: number): string {
  const [factor, letter] = ([[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "K"]] as const).find(([one]) => value >= one) ?? [1, ""];
  return `${(value / factor).toLocaleString("en-US", { maximumFractionDigits: 2 })} ${letter}`;
}
const rate = (gflops: number): string => `${scaled(gflops * 1e9)}FLOP/s`;

export function View({ api }: ViewProps): JSX.Element {
  const load = useLoad(JSON.stringify([api.capture, "roofline"]), (options) => api.get<Roofline>("roofline", {}, options));
  return (
    <Frame name="roofline" ready={!load.busy}>
      <Await load={load} tall>
        {(data) => {
          const peaks = Object.entries(data.chip?.peak_tflops ?? {});
          const note = data.chip ? [data.chip.name, ...peaks.map(([type, peak]) => `${type} ${peak} TFLOP/s`), data.chip.bandwidth_gb_s ? `${data.chip.bandwidth_gb_s} GB/s` : ""].filter(Boolean).join(" · ") : t(data.simulated ? "a simulated device has no roof" : "the roofs of this device are not known");
          return (
            <div class="stack">
              <Card title="Roofline" note={note} testid="roofline-chart"><Chart data={data} /></Card>
              <Points data={data} />
            </div>
          );
        }}
      </Await>
    </Frame>
  );
}

function Chart({ data }: { data: Roofline }): JSX.Element {
  const [over, setOver] = useState<Point | null>(null);
  const points = data.rows.filter((one): one is Point & { intensity: number } => one.intensity !== null && one.intensity > 0 && one.gflops > 0);
  if (!points.length) return <p class="table-note block">{t("No shapes are recorded, so bytes are not known: collect with record_shapes=True.")}</p>;
  const peaks = Object.entries(data.chip?.peak_tflops ?? {}).map(([type, peak]) => [type, peak * 1000] as const);
  const bandwidth = data.chip?.bandwidth_gb_s ?? null;
  const ridge = bandwidth ? Math.max(0, ...peaks.map(([, peak]) => peak / bandwidth)) : 0;
  const xs = decades(Math.min(...points.map((one) => one.intensity)), Math.max(...points.map((one) => one.intensity), ridge * 2 || 0));
  const ys = decades(Math.min(...points.map((one) => one.gflops)), Math.max(...points.map((one) => one.gflops), ...peaks.map(([, peak]) => peak)));
  const scale = (value: number, all: readonly number[]): number => Math.log(value / all[0]!) / Math.log(all.at(-1)! / all[0]!);
  const x = (value: number): number => LEFT + scale(value, xs) * (WIDE - LEFT - RIGHT);
  const y = (value: number): number => TALL - BOTTOM - scale(value, ys) * (TALL - BOTTOM - TOP);
  const colours = coloursOf(points.map((one) => one.name));
  const longest = Math.max(...points.map((one) => one.time_us));
  return (
    <figure class="roofline">
      <svg viewBox={`0 0 ${WIDE} ${TALL}`} role="img" aria-label={`Roofline, ${points.length}`}>
        {xs.map((value) => <g key={value}><line x1={x(value)} x2={x(value)} y1={TOP} y2={TALL - BOTTOM} class="grid" /><text x={x(value)} y={TALL - BOTTOM + 14} text-anchor="middle">{value}</text></g>)}
        {ys.map((value) => <g key={value}><line x1={LEFT} x2={WIDE - RIGHT} y1={y(value)} y2={y(value)} class="grid" /><text x={LEFT - 6} y={y(value) + 3} text-anchor="end">{scaled(value * 1e9)}</text></g>)}
        <text x={(WIDE + LEFT) / 2} y={TALL - 4} text-anchor="middle">{t("operations per byte")}</text>
        <text x={12} y={(TALL - BOTTOM + TOP) / 2} text-anchor="middle" transform={`rotate(-90 12 ${(TALL - BOTTOM + TOP) / 2})`}>{t("operations per second")}</text>
        {peaks.map(([type, peak]) => {
          const from = bandwidth ? Math.max(xs[0]!, peak / bandwidth) : xs[0]!;
          return <g key={type}><line x1={x(from)} x2={WIDE - RIGHT} y1={y(peak)} y2={y(peak)} class="roof" /><text x={WIDE - RIGHT - 4} y={y(peak) - 4} text-anchor="end">{type}</text></g>;
        })}
        {bandwidth !== null && ridge > 0 && <line x1={x(Math.max(xs[0]!, ys[0]! / bandwidth))} y1={y(Math.max(ys[0]!, xs[0]! * bandwidth))} x2={x(ridge)} y2={y(ridge * bandwidth)} class="roof" />}
        {points.map((one, at) => (
          <circle key={at} cx={x(one.intensity)} cy={y(one.gflops)} r={4 + 10 * Math.sqrt(one.time_us / longest)} fill={colours[at]} class={over === one ? "over" : ""} onMouseEnter={() => setOver(one)} onMouseLeave={() => setOver(null)} onClick={() => openView("operator", { q: one.name })}>
            <title>{`${one.name} ${one.dtype}: ${rate(one.gflops)}, ${one.intensity.toFixed(2)} ${t("operations per byte")}, ${auto(one.time_us, "us")}`}</title>
          </circle>
        ))}
        {named(points.map((one) => ({ name: one.name, x: x(one.intensity), y: y(one.gflops), r: 4 + 10 * Math.sqrt(one.time_us / longest), weight: one.time_us }))).map((one) => (
          <text key={`${one.name} ${one.x}`} class="point-name" x={one.left ? one.x - one.r - 4 : one.x + one.r + 4} y={one.y + 3.5} text-anchor={one.left ? "end" : "start"}>{one.name}</text>
        ))}
      </svg>
      <figcaption class="muted">{over ? `${over.name} ${over.dtype} · ${rate(over.gflops)} · ${(over.intensity ?? 0).toFixed(2)} ${t("operations per byte")}` : `${t("size of a point = its time")}${points.some((one) => one.inputs_only) ? ` · ${t("bytes of inputs only: outputs are not recorded")}` : ""}`}</figcaption>
    </figure>
  );
}

interface Named {
  readonly name: string;
  readonly x: number;
  readonly y: number;
  readonly r: number;
  readonly weight: number;
}

const LETTER = 6; // px of a letter, at most
const LINE = 13;

/** Names right or left of points, the longest times first; those that would cover another name are left to the table. */
function named(points: readonly Named[]): readonly (Named & { readonly left: boolean })[] {
  const taken: { readonly from: number; readonly to: number; readonly y: number }[] = [];
  return [...points].sort((a, b) => b.weight - a.weight).flatMap((one) => {
    const wide = one.name.length * LETTER;
    for (const left of [false, true]) {
      const from = left ? one.x - one.r - 4 - wide : one.x + one.r + 4;
      const outside = from < LEFT || from + wide > WIDE - RIGHT;
      if (outside || taken.some((other) => Math.abs(other.y - one.y) < LINE && other.from < from + wide && from < other.to)) continue;
      taken.push({ from, to: from + wide, y: one.y });
      return [{ ...one, left }];
    }
    return [];
  });
}

/** The table beside the chart: what of the roof is reached, where there is one. */
function Points({ data }: { data: Roofline }): JSX.Element {
  const reached = (one: Point): number | null => {
    const peak = data.chip?.peak_tflops[ALIASES[one.dtype] ?? one.dtype];
    if (!peak) return null;
    const memory = data.chip?.bandwidth_gb_s && one.intensity ? data.chip.bandwidth_gb_s * one.intensity : Infinity;
    return one.gflops / Math.min(peak * 1000, memory);
  };
  return (
    <Card title={t("Counted operators")} note={whole(data.count)} testid="roofline-table">
      <div class="wide-body">
        <table class="plain">
          <thead><tr><th scope="col">Name</th><th scope="col">Type</th><th scope="col" class="number">Calls</th><th scope="col" class="number">FLOP</th><th scope="col" class="number">{t(data.on_device ? "device time" : "host time")}</th><th scope="col" class="number">FLOP/s</th><th scope="col" class="number">FLOP/byte</th><th scope="col" class="number">{t("of the roof")}</th></tr></thead>
          <tbody>
            {data.rows.slice(0, 100).map((one) => {
              const share = reached(one);
              return (
                <tr key={one.name + one.dtype}>
                  <td><button type="button" class="link" onClick={() => openView("operator", { q: one.name })}>{one.name}</button></td><td>{one.dtype}</td>
                  <td class="number">{whole(one.calls)}</td><td class="number">{`${scaled(one.flops)}FLOP`}</td>
                  <td class="number">{auto(one.time_us, "us")}</td><td class="number">{rate(one.gflops)}</td>
                  <td class="number">{one.intensity === null ? "?" : `${one.inputs_only ? "≤ " : ""}${one.intensity.toFixed(2)}`}</td>
                  <td class="number">{share === null ? "?" : `${(100 * share).toFixed(1)} %`}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
