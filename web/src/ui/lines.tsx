// SPDX-License-Identifier: Apache-2.0
// Curves over real time, step after step; drag zooms, a click asks about an instant.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useWidth } from "./bars";
import { themeColour } from "./picture";

export interface Curve {
  readonly name: string;
  readonly colour: string;
  readonly dashed?: boolean;
  readonly hidden?: boolean;
  readonly x: readonly number[];
  readonly y: readonly number[];
}

export interface LinesProps {
  readonly curves: readonly Curve[];
  readonly unit: string;
  readonly range: readonly [number, number];
  readonly dark: boolean;
  readonly marks: readonly (number | null)[];
  readonly label: string;
  /** Written beside the first mark. */
  readonly markLabel?: string;
  readonly height?: number;
  readonly onZoom: (from: number, to: number) => void;
  readonly onReset: () => void;
  readonly onInstant?: (at: number) => void;
  readonly onCanvas?: (canvas: HTMLCanvasElement) => void;
}

const HEIGHT = 270;
const LABEL_GAP = 6;

function joined(curves: readonly Curve[]): uPlot.AlignedData {
  const tables = curves.map((curve) => [curve.x as number[], curve.y as number[]] as uPlot.AlignedData);
  return tables.length ? uPlot.join(tables) : [[]];
}

export function Lines(props: LinesProps): JSX.Element {
  const [box, width] = useWidth<HTMLDivElement>();
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const shape = JSON.stringify([props.curves.map((curve) => [curve.name, curve.colour]), props.dark, props.unit]);

  useEffect(() => {
    const host = box.current;
    if (!host || !width) return undefined;
    const grid = { stroke: themeColour("border"), width: 1 };
    const axis = { stroke: themeColour("muted"), grid, ticks: grid, font: "11px system-ui, sans-serif" };
    const number = (value: number): string => value.toLocaleString("en-US", { maximumFractionDigits: 3 });
    const options: uPlot.Options = {
      width,
      height: props.height ?? HEIGHT,
      legend: { show: true, live: true },
      cursor: { drag: { x: true, y: false, setScale: false }, focus: { prox: 24 }, points: { size: 7 } },
      scales: { x: { time: false, range: () => [...latest.current.range] as [number, number] }, y: { range: (_, low, high) => [Math.min(0, low), high * 1.06 || 1] } },
      axes: [
        { ...axis, space: 90, values: (_, splits) => splits.map((one) => `${number(one)} ms`) },
        { ...axis, size: 72, values: (_, splits) => splits.map((one) => `${number(one)} ${latest.current.unit}`) },
      ],
      series: [
        { label: "Time (ms)", value: (_, value) => (value === null ? "–" : number(value)) },
        ...props.curves.map((curve) => ({
          label: curve.name,
          stroke: curve.colour,
          show: !curve.hidden,
          width: 1.75,
          ...(curve.dashed ? { dash: [6, 4] } : {}),
          paths: uPlot.paths.stepped!({ align: 1 }),
          spanGaps: true,
          points: { show: false },
          value: (_: uPlot, value: number | null) => (value === null || value === undefined ? "–" : number(value)),
        })),
      ],
      hooks: {
        setSelect: [
          (self) => {
            if (self.select.width < 4) return;
            latest.current.onZoom(self.posToVal(self.select.left, "x"), self.posToVal(self.select.left + self.select.width, "x"));
            self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          },
        ],
        draw: [
          (self) => {
            const pen = self.ctx;
            latest.current.marks.forEach((mark, at) => {
              if (mark === null) return;
              const x = Math.round(self.valToPos(mark, "x", true));
              pen.save();
              pen.strokeStyle = themeColour(at === 0 ? "accent" : "danger");
              pen.lineWidth = 2;
              pen.setLineDash(at === 0 ? [] : [5, 4]);
              pen.beginPath();
              pen.moveTo(x, self.bbox.top);
              pen.lineTo(x, self.bbox.top + self.bbox.height);
              pen.stroke();
              const text = at === 0 ? latest.current.markLabel : "";
              if (text) {
                const left = x - self.bbox.left > self.bbox.width / 2;
                const gap = LABEL_GAP * devicePixelRatio;
                pen.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
                pen.fillStyle = themeColour("text");
                pen.textAlign = left ? "right" : "left";
                const wide = pen.measureText(text).width + gap;
                const top = self.bbox.top + self.bbox.height - 20 * devicePixelRatio; // below the curves, which are near the top at a peak
                pen.fillStyle = themeColour("surface");
                pen.fillRect(left ? x - gap / 2 - wide : x + gap / 2, top, wide, 16 * devicePixelRatio);
                pen.fillStyle = themeColour("text");
                pen.fillText(text, left ? x - gap : x + gap, top + 12 * devicePixelRatio);
              }
              pen.restore();
            });
          },
        ],
      },
    };
    const chart = new uPlot(options, joined(latest.current.curves), host);
    plot.current = chart;
    chart.over.addEventListener("dblclick", () => latest.current.onReset());
    let downAt = 0;
    chart.over.addEventListener("mousedown", (event) => { downAt = event.clientX; });
    chart.over.addEventListener("click", (event) => {
      if (Math.abs(event.clientX - downAt) < 4) latest.current.onInstant?.(chart.posToVal(event.offsetX, "x"));
    });
    latest.current.onCanvas?.(chart.ctx.canvas);
    return () => chart.destroy();
  }, [shape, width > 0]);

  useEffect(() => { if (width) plot.current?.setSize({ width, height: props.height ?? HEIGHT }); }, [width]);
  useEffect(() => { plot.current?.setData(joined(props.curves)); }, [props.curves]);
  useEffect(() => { plot.current?.redraw(false); }, [JSON.stringify([props.marks, props.markLabel, props.range])]);

  return (
    <div
      ref={box}
      class="lines"
      role="img"
      aria-label={props.label}
      tabIndex={0}
      onKeyDown={(event) => {
        if (event.key !== "Backspace") return;
        event.preventDefault();
        props.onReset();
      }}
    />
  );
}
