// SPDX-License-Identifier: Apache-2.0
// Bars per step, worker or phase: stacked or side by side, with lines over them; a heat strip when there are very many.

import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { colourOf, heat } from "../colour";
import { auto, middle, percent, three } from "../format";
import { dark } from "../settings";
import { t } from "../words";
import { ChartMenu, PlainTable } from "./chart_menu";
import { Card } from "./controls";
import type { Cell } from "./pages";
import { type Picture, type Shape, themeColour } from "./picture";

export interface Bar {
  readonly label: string;
  readonly values: readonly number[] | null;
  readonly marked?: string;
}

export interface Line {
  readonly name: string;
  readonly values: readonly number[];
}

export interface BarsProps {
  readonly id: string;
  readonly title: string;
  readonly axis: string;
  readonly series: readonly string[];
  readonly bars: readonly Bar[];
  readonly side?: boolean;
  readonly lines?: readonly Line[];
  readonly band?: { readonly low: number; readonly high: number; readonly label: string };
  readonly picked?: string;
  readonly onPick?: (bar: Bar) => void;
  readonly height?: number;
  /** More bars than this become a heat strip. */
  readonly many?: number;
  readonly note?: string;
}

const MANY = 400;

/** Round numbers that cut a range into four or five parts. */
export function ticks(low: number, high: number): number[] {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / 4));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => span / one <= 7) ?? span;
  const found: number[] = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(at);
  return found;
}

interface Geometry {
  readonly shapes: Shape[];
  readonly left: number;
  readonly step: number;
}

/** Both reaches with their zero at the same height, each just long enough for its values; either may be on one side of zero only. */
function oneZero(a: readonly [number, number], b: readonly [number, number]): [[number, number], [number, number]] {
  const below = ([low, high]: readonly [number, number]): number => (high > low ? -low / (high - low) : 0);
  const above = a[1] > 0 || b[1] > 0;
  // The first decides; the second has at least some room on each side that it needs.
  const share = Math.min(Math.max(below(a), b[0] < 0 ? 0.3 : 0), above ? 0.85 : 1);
  const fitted = ([low, high]: readonly [number, number]): [number, number] => {
    const length = Math.max(share > 0 ? -low / share : 0, share < 1 ? high / (1 - share) : 0) || 1;
    return [-share * length, (1 - share) * length];
  };
  return [fitted(a), fitted(b)];
}

function draw(props: BarsProps, hidden: ReadonlySet<string>, width: number, height: number): Geometry {
  const shown = props.series.map((name, at) => ({ name, at })).filter(({ name }) => !hidden.has(name));
  const lines = (props.lines ?? []).filter((line) => !hidden.has(line.name));
  const sums = props.bars.map((bar) => {
    const values = shown.map(({ at }) => bar.values?.[at] ?? 0);
    return props.side ? [Math.min(0, ...values), Math.max(0, ...values)] : [0, values.reduce((sum, one) => sum + one, 0)];
  });
  const reach = (pairs: readonly (readonly number[])[]): [number, number] => [Math.min(0, ...pairs.map((pair) => pair[0]!)), Math.max(0, ...pairs.map((pair) => pair[1]!))];
  let [low, high] = reach(sums);
  if (props.band) high = Math.max(high, props.band.high);
  let lineReach = lines.length ? reach(lines.map((line) => [Math.min(...line.values), Math.max(...line.values)])) : null;
  if (lineReach && (low < 0 || lineReach[0] < 0)) {
    [[low, high], lineReach] = oneZero([low, high], lineReach);
  }
  if (high <= low) high = low + 1;
  if (lineReach && lineReach[1] <= lineReach[0]) lineReach[1] = lineReach[0] + 1;
  const text = themeColour("muted");
  const grid = themeColour("border");
  const [left, right, top, bottom] = [70, lineReach ? 70 : 12, 14, 26];
  const [w, h] = [Math.max(10, width - left - right), height - top - bottom];
  const y = (value: number): number => top + h - ((value - low) / (high - low)) * h;
  const shapes: Shape[] = [];
  for (const tick of ticks(low, high)) {
    shapes.push({ kind: "path", d: `M${left} ${y(tick).toFixed(1)}h${w}`, stroke: grid });
    shapes.push({ kind: "text", x: left - 8, y: y(tick) + 4, text: tick === 0 ? "0" : auto(tick, "us"), fill: text, size: 11, anchor: "end" });
  }
  if (props.band) {
    const [a, b] = [y(props.band.high), y(Math.max(low, props.band.low))];
    shapes.push({ kind: "path", d: `M${left} ${a.toFixed(1)}h${w}v${Math.max(1, b - a).toFixed(1)}h${-w}z`, fill: themeColour("accent-soft") });
  }
  const step = w / Math.max(1, props.bars.length);
  const thick = Math.max(1, Math.min(56, step * 0.72));
  props.bars.forEach((bar, index) => {
    const x0 = left + step * index + (step - thick) / 2;
    if (!bar.values) {
      shapes.push({ kind: "text", x: left + step * (index + 0.5), y: y(0) - 6, text: "–", fill: text, size: 11, anchor: "middle" });
      return;
    }
    let base = 0;
    shown.forEach(({ name, at }, place) => {
      const value = bar.values![at] ?? 0;
      const part = props.side ? thick / shown.length : thick;
      const x = props.side ? x0 + part * place : x0;
      const [from, to] = props.side ? [y(0), y(value)] : [y(base), y(base + value)];
      base += value;
      if (Math.abs(from - to) < 0.05) return;
      shapes.push({ kind: "path", d: `M${x.toFixed(1)} ${from.toFixed(1)}h${Math.max(0.8, part - (props.side && part > 4 ? 1 : 0)).toFixed(1)}V${to.toFixed(1)}H${x.toFixed(1)}z`, fill: colourOf(name) });
    });
    if (bar.marked) shapes.push({ kind: "text", x: x0 + thick / 2, y: y(base) - 4, text: "▲", fill: themeColour("danger"), size: 10, anchor: "middle" });
  });
  const every = Math.max(1, Math.ceil(64 / step));
  props.bars.forEach((bar, index) => {
    if (index % every) return;
    const label = middle(bar.label, Math.max(6, Math.floor((step * every) / 7)));
    const at = left + step * (index + 0.5);
    const inside = at + 5 * label.length < width; // half of a name in the widest of the fonts that the page may get
    shapes.push({ kind: "text", x: inside ? at : width - 1, y: height - 8, text: label, fill: text, size: 11, anchor: inside ? "middle" : "end" });
  });
  if (lineReach) {
    const ly = (value: number): number => top + h - ((value - lineReach[0]) / (lineReach[1] - lineReach[0])) * h;
    for (const tick of ticks(lineReach[0], lineReach[1])) shapes.push({ kind: "text", x: width - right + 8, y: ly(tick) + 4, text: tick === 0 ? "0" : auto(tick, "us"), fill: text, size: 11 });
    for (const line of lines) {
      const points = line.values.map((value, at) => `${(left + step * (at + 0.5)).toFixed(1)} ${ly(value).toFixed(1)}`);
      shapes.push({ kind: "path", d: `M${points.join("L")}`, stroke: colourOf(line.name.replace(/ \(accumulated\)$/, "")), width: 2 });
    }
  }
  shapes.push({ kind: "path", d: `M${left} ${y(0).toFixed(1)}h${w}`, stroke: themeColour("border-strong") });
  return { shapes, left, step };
}

/** Room inside of a box, without its padding. */
export function useWidth<T extends HTMLElement>(): [preact.RefObject<T | null>, number] {
  const box = useRef<T>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const measure = (): void => {
      const { paddingLeft, paddingRight } = getComputedStyle(element);
      setWidth(element.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);
  return [box, width];
}

export function Bars(props: BarsProps): JSX.Element {
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [over, setOver] = useState<number | null>(null);
  const [asTable, setAsTable] = useState(false);
  const [box, width] = useWidth<HTMLDivElement>();
  const height = props.height ?? 250;
  void dark.value; // colours are read from the theme
  const strip = props.bars.length > (props.many ?? MANY);
  const geometry = width && !strip ? draw(props, hidden, width, height) : null;
  const lines = props.lines ?? [];
  const columns = [props.axis, ...props.series, ...lines.map((line) => line.name)];
  const rows = (): Cell[][] => props.bars.map((bar, at) => [bar.label, ...props.series.map((_, place) => bar.values?.[place] ?? null), ...lines.map((line) => line.values[at] ?? null)]);
  const picture = (): Picture => ({
    width: 1000,
    height: height + 40,
    background: themeColour("surface"),
    shapes: [{ kind: "text", x: 16, y: height + 26, text: `${props.title}: ${props.series.join(", ")}`, fill: themeColour("text") }, ...draw(props, hidden, 1000, height).shapes],
  });
  const pointed = over === null ? null : props.bars[over];
  const total = pointed?.values?.reduce((sum, one) => sum + one, 0) ?? 0;
  const toggle = (name: string): void => {
    const next = new Set(hidden);
    if (!next.delete(name)) next.add(name);
    setHidden(next);
  };
  return (
    <Card
      title={props.title}
      class="bars-card"
      testid={`chart-${props.id}`}
      {...(props.note ? { note: props.note } : {})}
      tools={<ChartMenu name={props.title} asTable={asTable} onTable={() => setAsTable(!asTable)} data={() => ({ columns, rows: rows() })} picture={picture} />}
    >
      <div class="chart-legend">
        {[...props.series, ...lines.map((line) => line.name)].map((name) => (
          <button key={name} type="button" aria-pressed={!hidden.has(name)} class={hidden.has(name) ? "off" : ""} onClick={() => toggle(name)}>
            <i class={props.series.includes(name) ? "swatch" : "swatch thin"} style={{ background: colourOf(name.replace(/ \(accumulated\)$/, "")) }} />
            {name}
          </button>
        ))}
        {props.band && <span class="band-note"><i class="swatch band" />{props.band.label}</span>}
      </div>
      <div class="bars" ref={box}>
        {asTable && <PlainTable label={props.title} columns={columns} rows={rows()} />}
        {!asTable && strip && <HeatStrip {...props} width={Math.max(100, width - 190)} onOver={setOver} />}
        {!asTable && geometry && (
          <svg
            width={width}
            height={height}
            role="img"
            aria-label={`${props.title}. ${props.bars.length} ${props.axis}`}
            onMouseMove={(event) => {
              const at = Math.floor((event.clientX - event.currentTarget.getBoundingClientRect().left - geometry.left) / geometry.step);
              setOver(at >= 0 && at < props.bars.length ? at : null);
            }}
            onMouseLeave={() => setOver(null)}
            onClick={() => over !== null && props.onPick?.(props.bars[over]!)}
            class={props.onPick ? "pick" : ""}
          >
            {over !== null && <rect x={geometry.left + geometry.step * over} y={8} width={geometry.step} height={height - 32} class="bar-hover" />}
            {props.picked !== undefined && props.bars.map((bar, at) => bar.label === props.picked && <rect key={at} x={geometry.left + geometry.step * at} y={8} width={geometry.step} height={height - 32} class="bar-picked" />)}
            {geometry.shapes.map((shape, at) =>
              shape.kind === "path" ? (
                <path key={at} d={shape.d} fill={shape.fill ?? "none"} stroke={shape.stroke ?? "none"} stroke-width={shape.width ?? 1} />
              ) : (
                <text key={at} x={shape.x} y={shape.y} fill={shape.fill} font-size={shape.size ?? 12} text-anchor={shape.anchor ?? "start"}>{shape.text}</text>
              ),
            )}
          </svg>
        )}
        {!asTable && pointed && over !== null && (
          <div class={`tip ${geometry && geometry.left + geometry.step * over > width / 2 ? "to-left" : ""}`} style={{ left: `${geometry ? geometry.left + geometry.step * (over + 0.5) : 90}px` }}>
            <strong>{props.axis} {pointed.label}</strong>
            {pointed.marked && <em>{pointed.marked}</em>}
            {props.series.map((name, at) => (
              <span key={name}>
                <i class="swatch" style={{ background: colourOf(name) }} />
                <span>{name}</span>
                <b>{three(pointed.values?.[at] ?? 0)} us</b>
                {!props.side && total > 0 && <small>{percent((pointed.values?.[at] ?? 0) / total)}</small>}
              </span>
            ))}
            {lines.map((line) => (
              <span key={line.name}>
                <i class="swatch thin" style={{ background: colourOf(line.name.replace(/ \(accumulated\)$/, "")) }} />
                <span>{line.name}</span>
                <b>{three(line.values[over] ?? 0)} us</b>
              </span>
            ))}
            {!props.side && <span class="sum"><i /><span>{t("Total")}</span><b>{three(total)} us</b></span>}
          </div>
        )}
      </div>
    </Card>
  );
}

/** One thin column per entry, one row per series, colour by value. */
function HeatStrip(props: BarsProps & { width: number; onOver: (at: number | null) => void }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const isDark = dark.value;
  const row = 26;
  useLayoutEffect(() => {
    const element = canvas.current;
    const pen = element?.getContext("2d");
    if (!element || !pen || !props.width) return;
    element.width = props.width;
    element.height = row * props.series.length;
    props.series.forEach((_, place) => {
      const values = props.bars.map((bar) => bar.values?.[place] ?? 0);
      const most = Math.max(...values) || 1;
      for (let x = 0; x < props.width; x++) {
        // The largest of the entries below one pixel, so that a slow one is never lost.
        const from = Math.floor((x / props.width) * values.length);
        const to = Math.max(from + 1, Math.floor(((x + 1) / props.width) * values.length));
        pen.fillStyle = heat(Math.max(...values.slice(from, to)) / most, isDark);
        pen.fillRect(x, place * row, 1, row - 2);
      }
    });
  }, [props.width, props.bars, props.series, isDark]);
  const at = (event: MouseEvent): number => Math.min(props.bars.length - 1, Math.floor((event.offsetX / props.width) * props.bars.length));
  return (
    <div class="heat-strip">
      <div class="heat-names" aria-hidden="true">{props.series.map((name) => <span key={name}><i class="swatch" style={{ background: colourOf(name) }} />{name}</span>)}</div>
      <canvas ref={canvas} role="img" aria-label={props.title} onMouseMove={(event) => props.onOver(at(event))} onMouseLeave={() => props.onOver(null)} onClick={(event) => props.onPick?.(props.bars[at(event)]!)} />
    </div>
  );
}
