// SPDX-License-Identifier: Apache-2.0
// Memory: how much was held over time, by whom, and which blocks.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Api } from "../api";
import { coloursOf } from "../colour";
import { auto, three, whole } from "../format";
import { dark } from "../settings";
import { openView, param, setParams } from "../state";
import { ChartMenu, PlainTable } from "../ui/chart_menu";
import { Card, IconButton, Search, Select } from "../ui/controls";
import { Lines } from "../ui/lines";
import { Icicle, type Tree } from "../ui/icicle";
import { type Loaded, useLoad } from "../ui/load";
import { Await, Problem } from "../ui/messages";
import { type Column, local, remote, type Row } from "../ui/pages";
import { Table } from "../ui/table";
import { t } from "../words";
import { Frame, Toolbar, type ViewProps } from "./view";

interface Series {
  readonly name: string;
  readonly component: string;
  readonly peak: number;
  readonly samples: number;
  readonly x_ms: readonly number[];
  readonly y: readonly number[];
}

interface CurveAnswer {
  readonly devices: readonly string[];
  readonly device: string;
  readonly groups: readonly string[];
  readonly from: number;
  readonly to: number;
  readonly blocks: boolean;
  readonly statistics: boolean;
  readonly titles: readonly string[];
  readonly series: readonly Series[];
}

const LABELS: Readonly<Record<string, string>> = { operator: "Operator", component: "Component", stream: "Stream", category: "Category" };

export function View({ api, device: kind }: ViewProps): JSX.Element {
  const group = param("group", "operator");
  const device = param("device") || null;
  const from = param("from") || null;
  const to = param("to") || null;
  const q = param("q");
  const held = param("held") === "1";
  const [low, high] = [param("min"), param("max")];
  const [marks, setMarks] = useState<(number | null)[]>([null, null]);
  const [alive, setAlive] = useState<number | null>(null);
  const [ready, setReady] = useState(false);
  const query = { device, group: group === "component" ? "component" : "operator", from, to, px: Math.max(400, Math.min(4000, window.innerWidth)) };
  const curve = useLoad(JSON.stringify([api.capture, query]), (options) => api.get<CurveAnswer>("memory/curve", query, options));
  const data = curve.data;
  const shownDevice = data?.device ?? device;
  const sizes: Record<string, { min?: number; max?: number }> = {};
  if (low || high) sizes["size"] = { ...(low ? { min: Number(low) } : {}), ...(high ? { max: Number(high) } : {}) };
  const zoom = (a: number | null, b: number | null): void => setParams({ from: a === null ? null : String(Math.max(0, Math.round(a * 1e6))), to: b === null ? null : String(Math.round(b * 1e6)) });
  const component = group === "component";
  const events = remote(api, "memory/events", { device: shownDevice, from, to, held: held ? 1 : null, ...(Object.keys(sizes).length ? { filter: JSON.stringify(sizes) } : {}) });
  const peak = useLoad(data?.blocks ? JSON.stringify([api.capture, shownDevice, param("by", "line"), "peak"]) : null, (options) => api.get<PeakAnswer>("memory/peak", { device: shownDevice, by: param("by", "line") }, options));
  const kept = useLoad(data?.blocks ? JSON.stringify([api.capture, shownDevice, "kept"]) : null, (options) => api.get<KeptAnswer>("memory/kept", { device: shownDevice }, options));
  const peakAt = peak.data ? peak.data.at / 1e6 : null;
  /** Around the peak, and its owners in view. */
  const showPeak = (): void => {
    if (!data || peakAt === null) return;
    const [low, high] = rangeOf(data, null, null);
    const near = (high - low) * 0.05;
    setParams({ peak: "1", from: String(Math.max(0, Math.round((peakAt - near) * 1e6))), to: String(Math.round((peakAt + near) * 1e6)) });
    requestAnimationFrame(() => document.querySelector("[data-testid=memory-peak]")?.scrollIntoView({ block: "nearest" }));
  };
  return (
    <Frame name="memory" ready={ready && !curve.busy && !peak.busy}>
      {peak.data && <PeakLine data={peak.data} />}
      <Await load={curve} remedy="memory">
        {(answer) => (
          <CurveCard
            answer={answer} range={rangeOf(answer, from, to)} marks={marks.every((one) => one === null) ? [peakAt] : marks} onZoom={zoom} onInstant={setAlive}
            label={peakAt !== null && peak.data ? `${t("Peak")} ${mib(peak.data.bytes)} · ${three(peakAt)} ms` : ""}
            tools={
              <>
                {answer.devices.length > 0 && <Select label="Device" testid="select-device" value={shownDevice ?? ""} options={answer.devices.map((one) => ({ value: one, label: one }))} onChange={(value) => setParams({ device: value })} />}
                {(from || to) && <button type="button" class="chip" onClick={() => zoom(null, null)}>{three(Number(from ?? 0) / 1e6)} … {three(Number(to ?? data?.to ?? 0) / 1e6)} ms ✕</button>}
                {answer.blocks && <button type="button" class="button primary" data-testid="btn-peak" onClick={showPeak}>{t("Show peak")}</button>}
              </>
            }
          />
        )}
      </Await>
      {data?.blocks && <Peak load={peak} steps={kept.data} />}
      {kept.data && <KeptCard data={kept.data} />}
      <Toolbar>
        <Select label="Group By" testid="select-group-by" value={component ? "component" : "operator"} options={(data?.groups ?? ["operator"]).map((one) => ({ value: one, label: LABELS[one] ?? one }))} onChange={(value) => { setReady(false); setParams({ group: value, t: null, q: null }); }} />
        <Search label={t("Search by Name")} testid="search-name" value={q} onChange={(value) => setParams({ q: value || null })} />
        {!component && (
          <>
            <SizeField label="Min Size(KB)" value={low} onChange={(value) => setParams({ min: value || null })} />
            <SizeField label="Max Size(KB)" value={high} onChange={(value) => setParams({ max: value || null })} />
            <label class="check">
              <input type="checkbox" checked={held} onChange={(event) => setParams({ held: event.currentTarget.checked ? "1" : null })} />
              {t("Held at the end")}
            </label>
          </>
        )}
      </Toolbar>
      {alive !== null && <Alive api={api} device={shownDevice} at={alive} onClose={() => setAlive(null)} />}
      {!data && !curve.problem ? null /* which device is meant comes with the curve */ : component ? (
        <Table id="components" key="components" label={t("Peaks of components")} q={q} source={remote(api, "memory/components", { device: shownDevice })} saved={{ value: param("t"), save: (value) => setParams({ t: value }) }} onPage={() => setReady(true)} onProblem={() => setReady(true)} remedy="memory" />
      ) : data && !data.blocks ? (
        <NoBlocks api={api} onShown={() => setReady(true)} />
      ) : (
        <Table
          id="memory"
          key="memory"
          label={t("Memory blocks")}
          q={q}
          source={sized(events, sizes)}
          saved={{ value: param("t"), save: (value) => setParams({ t: value }) }}
          onPage={() => setReady(true)}
          onProblem={() => setReady(true)}
          remedy="memory"
          onTrace={(row, columns) => {
            const at = (key: string): number => Number(row[columns.findIndex((column) => column.key === key)] ?? NaN);
            const begin = at("allocation") * 1e6;
            const end = at("release") * 1e6;
            if (Number.isFinite(begin)) openView("trace", { t: `${Math.max(0, Math.round(begin - 1e5))}_${Math.round((Number.isFinite(end) ? end : begin) + 1e5)}` });
          }}
          onHover={(row, columns) => {
            const at = (key: string): number | null => {
              const value = row?.[columns.findIndex((column) => column.key === key)];
              return typeof value === "number" ? value : null;
            };
            setMarks([at("allocation"), at("release")]);
          }}
        />
      )}
      {!component && kind !== "npu" && kind !== "" && data?.statistics && (
        <Card title={t("Statistics by operator")} class="tall-card">
          <Table id="memory-statistics" label={t("Statistics by operator")} source={remote(api, "memory/statistics", { device: shownDevice })} />
        </Card>
      )}
    </Frame>
  );
}

/** Why there is no table: none were recorded, or their file cannot be read. */
function NoBlocks({ api, onShown }: { api: Api; onShown: () => void }): JSX.Element | null {
  const load = useLoad(JSON.stringify([api.capture, "no blocks"]), (options) => api.get("memory/events", { limit: 1 }, options));
  useEffect(() => { if (!load.busy) onShown(); }, [load.busy]);
  if (load.busy) return null;
  return load.problem ? <Problem problem={load.problem} /> : <p class="table-note block">{t("This capture has no single blocks, only how much was held over time.")}</p>;
}

/** The chosen window, else where the curves are; either way on the clock of the whole capture. */
function rangeOf(answer: CurveAnswer, from: string | null, to: string | null): [number, number] {
  if (from !== null || to !== null) return [Number(from ?? answer.from) / 1e6, Number(to ?? answer.to) / 1e6];
  const firsts = answer.series.map((one) => one.x_ms[0] ?? Infinity);
  const lasts = answer.series.map((one) => one.x_ms[one.x_ms.length - 1] ?? -Infinity);
  const [low, high] = [Math.min(...firsts), Math.max(...lasts)];
  if (!(high > low)) return [answer.from / 1e6, answer.to / 1e6];
  const margin = (high - low) * 0.02;
  return [Math.max(0, low - margin), high + margin];
}

/** What is held stays held until the next sample: in a window the curve goes on to its edge. */
function untilTheEnd(one: Series, answer: CurveAnswer, edge: number): { x: readonly number[]; y: readonly number[] } {
  const last = one.x_ms.at(-1);
  const zoomed = answer.from > 0 || edge < answer.to / 1e6;
  return zoomed && last !== undefined && last < edge ? { x: [...one.x_ms, edge], y: [...one.y, one.y.at(-1)!] } : { x: one.x_ms, y: one.y };
}

/** The two size fields act together with the column filters of the table. */
function sized(source: ReturnType<typeof remote>, sizes: Record<string, { min?: number; max?: number }>): ReturnType<typeof remote> {
  if (!Object.keys(sizes).length) return source;
  return {
    key: source.key,
    page: (question, options) => source.page({ ...question, filters: { ...sizes, ...question.filters } }, options),
    csv: (question) => source.csv!({ ...question, filters: { ...sizes, ...question.filters } }),
  };
}

function SizeField({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }): JSX.Element {
  return (
    <label class="field-label">
      <span>{label}</span>
      <input class="short" type="number" min={0} step="any" value={value} onChange={(event) => onChange(event.currentTarget.value)} />
    </label>
  );
}

function CurveCard(props: { answer: CurveAnswer; range: [number, number]; label: string; tools: JSX.Element; marks: (number | null)[]; onZoom: (from: number | null, to: number | null) => void; onInstant: (at: number) => void }): JSX.Element {
  const { answer } = props;
  const [asTable, setAsTable] = useState(false);
  const canvas = useRef<HTMLCanvasElement | null>(null);
  const curves = useMemo(() => {
    const colours = coloursOf(answer.series.map((one) => one.name));
    return answer.series.map((one, at) => ({ name: one.name, colour: colours[at]!, dashed: /Reserved/.test(one.name), hidden: /Active/.test(one.name) && answer.series.length > 2, ...untilTheEnd(one, answer, props.range[1]) }));
  }, [answer, props.range[1]]);
  const [first, ...rest] = answer.titles;
  const rows = answer.series.map((one) => [one.name, one.component, one.peak, one.samples]);
  const columns = ["Series", "Component", "Peak (MB)", "Samples"];
  return (
    <Card
      title={first ?? "Memory"}
      class="lines-card"
      testid="chart-memory"
      note={rest.length ? rest.join(" · ") : t("Zoom: drag. Reset: double click or Backspace.")}
      tools={
        <>
        {props.tools}
        <ChartMenu
          name="memory"
          asTable={asTable}
          onTable={() => setAsTable(!asTable)}
          data={() => ({ columns: ["Series", "Time (ms)", "MB"], rows: answer.series.flatMap((one) => one.x_ms.map((x, at) => [one.name, x, one.y[at] ?? null])) })}
          png={() => new Promise((resolve, reject) => (canvas.current ? canvas.current.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture")))) : reject(new Error("no chart"))))}
        />
        </>
      }
    >
      {asTable ? (
        <PlainTable label={first ?? "Memory"} columns={columns} rows={rows} />
      ) : (
        <Lines height={window.innerHeight > 900 ? 240 : 170} markLabel={props.label} curves={curves} unit="MB" range={props.range} dark={dark.value} marks={props.marks} label={answer.titles.join("; ")} onZoom={props.onZoom} onReset={() => props.onZoom(null, null)} onInstant={props.onInstant} onCanvas={(element) => { canvas.current = element; }} />
      )}
    </Card>
  );
}

interface PeakAnswer {
  readonly at: number;
  readonly bytes: number;
  readonly before: number;
  readonly blocks: number;
  readonly reserved_mb: number | null;
  readonly tree: Tree;
  readonly owners: readonly { readonly owner: string; readonly operators: readonly string[]; readonly bytes: number; readonly share: number; readonly count: number; readonly held_ns: number | null }[];
  readonly count: number;
  /** The next peak, had the largest owner that is named held nothing. */
  readonly without: { readonly owner: string; readonly bytes: number; readonly saved: number; readonly at: number } | null;
}

/** Names of the server that are words, not names. */
const ownerText = (owner: string): string => (owner.startsWith("(") || owner === BEFORE ? t(owner) : owner.replace(/^.*\/((?:[^/]+\/)?[^/]+)$/, "$1"));
const BEFORE = "held before the capture";
const mib = (bytes: number): string => `${(bytes / 1048576).toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} MiB`;

/** The answer of the view: how much, whose, and what the pool holds beside it. */
function PeakLine({ data }: { data: PeakAnswer }): JSX.Element {
  const said = data.owners.slice(0, 2).map((one) => `${(one.share * 100).toFixed(0)} % ${ownerText(one.owner)}`).join(t(", "));
  const idle = data.reserved_mb === null ? null : data.reserved_mb * 1048576 - data.bytes;
  return (
    <section class="card verdict-answer memory-answer" aria-label={t("Answer")} data-testid="memory-answer">
      <div>
        <h2>{t("Peak")} {mib(data.bytes)}{t(": ")}{said}</h2>
        <p>{t("at")} {three(data.at / 1e6)} ms · {whole(data.blocks)} {t("blocks are held then")}</p>
      </div>
      <dl>
        {data.reserved_mb !== null && <div><dd>{mib(data.reserved_mb * 1048576)}</dd><dt>{t("reserved")}</dt></div>}
        {idle !== null && idle >= 0 && <div><dd>{mib(idle)}</dd><dt>{t("reserved, not allocated")}</dt></div>}
      </dl>
    </section>
  );
}

/** Who owns the peak: lines or modules, then operators; what was held before the capture is one part of its own. */
function Peak({ load, steps }: { load: Loaded<PeakAnswer>; steps: KeptAnswer | null }): JSX.Element {
  const by = param("by", "line");
  return (
    <Card
      title={t("Who owns the peak")}
      note={t("width = bytes held at the peak · click = zoom")}
      testid="memory-peak"
      tools={
        <span class="segments" role="group" aria-label={t("Who owns the peak")}>
          {(["line", "module"] as const).map((one) => <button key={one} type="button" aria-pressed={by === one} onClick={() => setParams({ by: one })}>{t(one === "line" ? "Source line" : "Module")}</button>)}
        </span>
      }
    >
      <Await load={load}>
        {(data) => (
          <div class="memory-peak">
            <Icicle tree={{ ...data.tree, names: data.tree.names.map((name) => (name === "peak" ? t("Peak") : name.startsWith("(") || name === BEFORE ? t(name) : name)), weight: data.tree.weight.map((one) => one / 1048576) }} unit="MiB" dotted={t(BEFORE)} label={t("Who owns the peak")} testid="chart-peak" plain={new Set([t(BEFORE), t("(no owner recorded)")])} />
            <div class="memory-below">
            <table class="plain" data-testid="table-owners">
              <thead><tr><th scope="col">{t("Owner")}</th><th scope="col">{t("What")}</th><th scope="col" class="number">MiB</th><th scope="col" class="number">%</th><th scope="col" class="number">{t("held after")}</th></tr></thead>
              <tbody>
                {data.owners.slice(0, 12).map((one) => (
                  <tr key={one.owner} class={one.owner === BEFORE ? "before" : ""}>
                    <td title={one.owner.startsWith("(") || one.owner === BEFORE ? t(one.owner) : one.owner}>{one.owner === BEFORE && <i class="part unknown swatch" aria-hidden="true" />} {ownerText(one.owner)}</td>
                    <td class="muted">{one.owner === BEFORE ? t("its owner is not recorded: weights, optimizer state, caches") : one.operators.filter(Boolean).join(", ")}</td>
                    <td class="number">{(one.bytes / 1048576).toFixed(1)}</td>
                    <td class="number">{(one.share * 100).toFixed(1)}</td>
                    <td class="number">{one.held_ns === null ? t("to the end") : `${three(one.held_ns / 1e6)} ms`}</td>
                  </tr>
                ))}
                {data.count > 12 && <tr><td colSpan={5} class="muted">{data.count - 12} {t("more")}</td></tr>}
              </tbody>
            </table>
            <Next data={data} steps={steps} />
            </div>
          </div>
        )}
      </Await>
    </Card>
  );
}

/** What to do about the peak, and what the capture cannot tell about it. */
function Next({ data, steps }: { data: PeakAnswer; steps: KeptAnswer | null }): JSX.Element {
  const { without } = data;
  return (
    <aside class="memory-next" data-testid="memory-next">
      <h3>{t("Next")}</h3>
      {without === null ? <p>{t("Nobody can be named: record stacks or modules.")}</p> : (
        <p>
          <b>−{mib(without.saved)}</b> {t("without")} {ownerText(without.owner)}{t("; ")}
          {t("the next peak is")} {mib(without.bytes)}, {three(without.at / 1e6)} ms
        </p>
      )}
      {(data.before > 0 || (steps !== null && steps.steps.length < steps.least)) && (
        <>
          <h3>{t("Cannot tell")}</h3>
          <ul class="cannot">
            {steps !== null && steps.steps.length < steps.least && <li data-testid="memory-kept"><i aria-hidden="true">?</i> <span><b>{t("Leaks")}</b>{t(": ")}{t("the leak view needs")} {steps.least} {t("steps")}, {steps.steps.length} {t("recorded")}</span></li>}
            {data.before > 0 && <li><i aria-hidden="true">?</i> <span><b>{t("Owners before the start")}</b>{t(": ")}{t("record from the first step")}</span></li>}
          </ul>
        </>
      )}
    </aside>
  );
}

interface KeptAnswer {
  readonly steps: readonly number[];
  readonly judged: number;
  readonly least: number;
  readonly lows_mb: readonly (number | null)[];
  readonly count: number;
  readonly rows: readonly { readonly owner: string; readonly operator: string; readonly steps: number; readonly bytes: number; readonly held: number; readonly per_step: readonly number[] }[];
}

/** Leaks: what steps leave behind, and the least that is held in each of them. */
function KeptCard({ data }: { data: KeptAnswer }): JSX.Element | null {
  if (data.steps.length < data.least) return null; // said beside the peak
  const lows = data.lows_mb.filter((one): one is number => one !== null);
  const rise = lows.length > 1 ? lows.at(-1)! - lows[0]! : 0;
  return (
    <Card title={t("Held over steps")} note={t("blocks that outlive the step after theirs; what every step leaves behind is a leak")} testid="memory-kept">
      <div class="memory-peak">
        <p class="memory-kept">
          {t("Least held in a step")}{t(": ")}<b>{mib((lows[0] ?? 0) * 1048576)} → {mib((lows.at(-1) ?? 0) * 1048576)}</b> ({rise >= 0 ? "+" : "−"}{mib(Math.abs(rise) * 1048576)})
          <Spark values={lows} label={t("Least held in a step")} />
        </p>
        {data.rows.length === 0 ? <p class="memory-kept">{t("No step leaves anything behind.")}</p> : (
          <table class="plain" data-testid="table-kept">
            <thead><tr><th scope="col">{t("Owner")}</th><th scope="col">{t("What")}</th><th scope="col" class="number">{t("in steps")}</th><th scope="col" class="number">MiB</th><th scope="col" class="number">{t("never released")} (MiB)</th><th scope="col">{t("step by step")}</th></tr></thead>
            <tbody>
              {data.rows.slice(0, 12).map((one) => (
                <tr key={one.owner + one.operator} class={one.steps >= Math.max(2, data.judged * 0.8) && one.held > 0 ? "suspect" : ""}>
                  <td title={one.owner.startsWith("(") || one.owner === BEFORE ? t(one.owner) : one.owner}>{ownerText(one.owner)}</td><td class="muted">{one.operator}</td>
                  <td class="number">{one.steps} {t("of")} {data.judged}</td>
                  <td class="number">{(one.bytes / 1048576).toFixed(1)}</td><td class="number">{(one.held / 1048576).toFixed(1)}</td>
                  <td><Spark values={one.per_step} label={t("step by step")} /></td>
                </tr>
              ))}
              {data.count > 12 && <tr><td colSpan={6} class="muted">{data.count - 12} {t("more")}</td></tr>}
            </tbody>
          </table>
        )}
      </div>
    </Card>
  );
}

function Spark({ values, label }: { values: readonly number[]; label: string }): JSX.Element {
  const most = Math.max(...values, 1e-9);
  const shown = values.length > 120 ? Array.from({ length: 120 }, (_, at) => values[Math.floor((at * values.length) / 120)]!) : values;
  return <span class="spark" role="img" aria-label={label}>{shown.map((one, at) => <i key={at} style={{ height: `${Math.max(4, (100 * one) / most)}%` }} />)}</span>;
}

interface AliveAnswer {
  readonly at: number;
  readonly count: number;
  readonly bytes: number;
  readonly rows: readonly { name: string; size_kb: number; allocation_ms: number | null; release_ms: number | null }[];
}

const ALIVE: readonly Column[] = [
  { key: "name", name: "Name", type: "text" },
  { key: "size", name: "Size (KB)", unit: "KB", type: "float" },
  { key: "allocation", name: "Allocation Time (ms)", unit: "ms", type: "float" },
  { key: "release", name: "Release Time (ms)", unit: "ms", type: "float" },
];

function Alive({ api, device, at, onClose }: { api: Api; device: string | null; at: number; onClose: () => void }): JSX.Element {
  const ns = Math.max(0, Math.round(at * 1e6));
  const load = useLoad(JSON.stringify([api.capture, device, ns]), (options) => api.get<AliveAnswer>("memory/alive", { device, at: ns }, options));
  useEffect(() => {
    const close = (event: KeyboardEvent): void => { if (event.key === "Escape") onClose(); };
    document.addEventListener("keydown", close);
    return () => document.removeEventListener("keydown", close);
  }, []);
  return (
    <Card title={`${t("Alive at")} ${three(at)} ms`} note={load.data ? `${whole(load.data.count)} · ${auto(load.data.bytes, "bytes")}` : ""} tools={<IconButton small icon="close" label={t("Close")} onClick={onClose} />}>
      <Await load={load}>
        {(data) => <Table id="alive" fit label={t("Alive at")} source={local(JSON.stringify([device, ns]), ALIVE, data.rows.map((row): Row => [row.name, row.size_kb, row.allocation_ms, row.release_ms]), ["size"])} />}
      </Await>
    </Card>
  );
}
