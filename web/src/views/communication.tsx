// SPDX-License-Identifier: Apache-2.0
// Communication: links between ranks as a matrix, and how well each kind of link is used.

import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Api } from "../api";
import { heat } from "../colour";
import { three } from "../format";
import { dark } from "../settings";
import { param, setParams } from "../state";
import { useWidth } from "../ui/bars";
import { ChartMenu, PlainTable } from "../ui/chart_menu";
import { Card, Select } from "../ui/controls";
import { useLoad, useOthers } from "../ui/load";
import { Await } from "../ui/messages";
import { t } from "../words";
import { Frame, Toolbar, type ViewProps } from "./view";

interface Link {
  readonly src: number;
  readonly dst: number;
  readonly transport: string | null;
  readonly size_mb: number | null;
  readonly time_ms: number | null;
  readonly bandwidth: number | null;
  readonly op_name: string | null;
}

interface Matrix {
  readonly steps: readonly string[];
  readonly step: string;
  readonly ops: readonly string[];
  readonly op: string;
  readonly ranks: readonly number[];
  readonly binned: boolean;
  readonly links: readonly Link[];
  readonly missing: readonly { worker: string; state: string }[];
}

interface Bandwidth {
  readonly ops: readonly string[];
  readonly op: string;
  readonly rows: readonly (Readonly<Record<string, unknown>> & { packets: readonly { size_mb: number; count: number; time_ms: number }[] })[];
  readonly reference: Readonly<Record<string, number>>;
}

const METRICS = { bandwidth: "Bandwidth(GB/s)", size_mb: "Transit Size(MB)", time_ms: "Transit Time(ms)" } as const;
type Metric = keyof typeof METRICS;

const choices = (all: readonly string[]): { value: string; label: string }[] => all.map((one) => ({ value: one, label: one.split("@")[0]! }));

export function View({ api }: ViewProps): JSX.Element {
  const query = { step: param("cstep") || null, op: param("op") || null };
  const metric = (param("metric", "bandwidth") in METRICS ? param("metric", "bandwidth") : "bandwidth") as Metric;
  const inner = param("inner") === "1";
  const load = useLoad(JSON.stringify([api.capture, query]), (options) => api.get<Matrix>("comm/matrix", query, options));
  const pending = useOthers(load);
  return (
    <Frame name="communication" ready={!load.busy && !pending}>
      <Toolbar>
        <Select label={t("Step")} testid="select-step" value={load.data?.step ?? ""} options={choices(load.data?.steps ?? [])} onChange={(value) => setParams({ cstep: value, op: null })} />
        <Select label="Operator" testid="select-op" value={load.data?.op ?? ""} options={choices(load.data?.ops ?? [])} onChange={(value) => setParams({ op: value })} />
        <Select label="Communication Matrix Type" testid="select-metric" value={metric} options={Object.entries(METRICS).map(([value, label]) => ({ value, label }))} onChange={(value) => setParams({ metric: value })} />
        <label class="check"><input type="checkbox" checked={inner} onChange={(event) => setParams({ inner: event.currentTarget.checked ? "1" : null })} />{t("Show inner communication")}</label>
      </Toolbar>
      <div class="grid2">
        <Await load={load} remedy="communication">{(data) => <Heat data={data} metric={metric} inner={inner} />}</Await>
        <BandwidthCard api={api} step={query.step} />
      </div>
    </Frame>
  );
}

function Heat({ data, metric, inner }: { data: Matrix; metric: Metric; inner: boolean }): JSX.Element {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [over, setOver] = useState<Link | null>(null);
  const [asTable, setAsTable] = useState(false);
  const isDark = dark.value;
  const links = data.links.filter((link) => inner || link.src !== link.dst);
  const values = links.map((link) => link[metric] ?? 0);
  const [low, high] = [Math.min(...values, Number.MAX_VALUE), Math.max(...values, 0)];
  // A rank whose capture is not here sends nothing: its row would only be empty.
  const senders = new Set(links.map((link) => link.src));
  const sources = data.ranks.filter((rank) => senders.has(rank));
  const silent = data.ranks.length - sources.length;
  const margin = 34;
  const side = Math.max(4, Math.min(54, Math.floor((Math.min(width, 640) - margin) / Math.max(1, data.ranks.length))));
  const [across, down] = [margin + side * data.ranks.length, margin + side * sources.length];
  const column = new Map(data.ranks.map((rank, place) => [rank, place]));
  const line = new Map(sources.map((rank, place) => [rank, place]));
  useLayoutEffect(() => {
    const element = canvas.current;
    const pen = element?.getContext("2d");
    if (!element || !pen || !width) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = across * ratio;
    element.height = down * ratio;
    element.style.width = `${across}px`;
    element.style.height = `${down}px`;
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillStyle = isDark ? "#9ca8b8" : "#566070";
    const every = Math.max(1, Math.ceil(22 / side));
    data.ranks.forEach((rank, place) => { if (!(place % every)) pen.fillText(String(rank), margin + (place + 0.5) * side, margin / 2); });
    sources.forEach((rank, place) => { if (!(place % every)) pen.fillText(String(rank), margin / 2, margin + (place + 0.5) * side); });
    pen.fillStyle = isDark ? "#0c1015" : "#eef0f4";
    pen.fillRect(margin, margin, across - margin, down - margin);
    for (const link of links) {
      const value = link[metric] ?? 0;
      const share = high > low ? (value - low) / (high - low) : 1;
      const [x, y] = [margin + (column.get(link.dst) ?? 0) * side, margin + (line.get(link.src) ?? 0) * side];
      pen.fillStyle = heat(0.12 + 0.88 * share, isDark);
      pen.fillRect(x, y, side - 1, side - 1);
      if (side >= 40) {
        pen.fillStyle = isDark ? (share > 0.55 ? "#0b1220" : "#e5e9f0") : share > 0.4 ? "#ffffff" : "#18202c";
        pen.fillText(value >= 100 ? value.toFixed(0) : value.toFixed(1), x + side / 2, y + side / 2);
      }
    }
  }, [data, metric, inner, width, isDark]);
  const columns = ["Src Rank Id", "Dst Rank Id", "Transport Type", "Transit Size(MB)", "Transit Time(ms)", "Bandwidth(GB/s)"];
  const rows = links.map((link) => [link.src, link.dst, link.transport, link.size_mb, link.time_ms, link.bandwidth]);
  return (
    <Card title={`${t("Communication matrix")} · ${METRICS[metric]}`} testid="chart-matrix" {...(data.binned ? { note: "binned" } : {})} tools={<ChartMenu name="communication-matrix" asTable={asTable} onTable={() => setAsTable(!asTable)} data={() => ({ columns, rows })} png={() => new Promise((resolve, reject) => canvas.current?.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture")))))} />}>
      <div class="card-body matrix" ref={box}>
        {asTable ? <PlainTable label={t("Communication matrix")} columns={columns} rows={rows} /> : (
          <>
            <canvas
              ref={canvas}
              role="img"
              aria-label={`${METRICS[metric]}, Src Rank Id × Dst Rank Id`}
              onMouseMove={(event) => {
                const [src, dst] = [sources[Math.floor((event.offsetY - margin) / side)], data.ranks[Math.floor((event.offsetX - margin) / side)]];
                setOver(links.find((link) => link.src === src && link.dst === dst) ?? null);
              }}
              onMouseLeave={() => setOver(null)}
            />
            <p class="hint">{over ? `Src ${over.src} → Dst ${over.dst} · ${over.transport ?? ""} · ${three(over.size_mb ?? 0)} MB · ${three(over.time_ms ?? 0)} ms · ${three(over.bandwidth ?? 0)} GB/s` : `Src Rank Id ↓ · Dst Rank Id →${links.length ? ` · ${three(low)} … ${three(high)}` : ""}${silent ? ` · ${silent} ${t("ranks sent nothing that is recorded here")}` : ""}`}</p>
          </>
        )}
      </div>
    </Card>
  );
}

function BandwidthCard({ api, step }: { api: Api; step: string | null }): JSX.Element {
  const op = param("bop") || null;
  const load = useLoad(JSON.stringify([api.capture, step, op]), (options) => api.get<Bandwidth>("comm/bandwidth", { step, op }, options));
  const names = ["Transport Type", "Transit Size(MB)", "Transit Time(ms)", "Bandwidth(GB/s)", "Large Packet Ratio"];
  return (
    <Card title={t("Bandwidth")} testid="table-bandwidth" tools={<Select label="Operator" testid="select-bandwidth-op" value={load.data?.op ?? ""} options={choices(load.data?.ops ?? [])} onChange={(value) => setParams({ bop: value })} />}>
      <Await load={load} remedy="communication">
        {(data) => (
          <div class="card-body wide-body" tabIndex={0} role="region" aria-label={`${t("Bandwidth")} · ${data.op}`}>
            <table class="plain">
              <thead><tr>{names.map((name, at) => <th key={name} scope="col" class={at ? "number" : ""}>{name.split("(")[0]}{name.includes("(") && <><wbr />({name.split("(")[1]}</>}</th>)}<th scope="col">Reference</th></tr></thead>
              <tbody>
                {data.rows.map((row) => {
                  const kind = String(row["Transport Type"]);
                  const known = data.reference[kind];
                  const got = Number(row["Bandwidth(GB/s)"] ?? 0);
                  return (
                    <tr key={kind}>
                      {names.map((name, at) => <td key={name} class={at ? "number" : ""}>{typeof row[name] === "number" ? three(row[name]) : String(row[name] ?? "–")}</td>)}
                      <td>{known !== undefined && got > 0 ? <span class="reached" title={`${got.toFixed(2)} / ${known} GB/s`}><i style={{ width: `${Math.min(100, (got / known) * 100)}%` }} /><b>{known} GB/s</b></span> : <span class="muted">{known === undefined ? "" : `${known} GB/s`}</span>}</td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
            {data.rows.filter((row) => row.packets.length > 0).map((row) => {
              const most = Math.max(...row.packets.map((packet) => packet.count));
              return (
                <figure key={String(row["Transport Type"])} class="packets">
                  <figcaption>{String(row["Transport Type"])} · {t("packet size (MB) × count")}</figcaption>
                  <ul>{row.packets.map((packet) => <li key={packet.size_mb}><span>{packet.size_mb.toFixed(3)}</span><i style={{ width: `${(packet.count / most) * 60}%` }} /><b>{packet.count}</b><small>{three(packet.time_ms)} ms</small></li>)}</ul>
                </figure>
              );
            })}
          </div>
        )}
      </Await>
    </Card>
  );
}
