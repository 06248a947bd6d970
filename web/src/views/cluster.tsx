// SPDX-License-Identifier: Apache-2.0
// Cluster: which rank, host or link holds the run up, all ranks by steps, one step on the common clock, links, pipeline, what if.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Api } from "../api";
import { dark } from "../settings";
import { openView, param, selection, setParams, type Texts } from "../state";
import { Card, IconButton, Select } from "../ui/controls";
import { useLoad } from "../ui/load";
import { Await } from "../ui/messages";
import { inLanguage, t } from "../words";
import { type Clocked, drawHeat, drawLinks, drawPipeline, drawRanks, type Heat, type Links, matrixCell, type Pipeline, toneEdge, TONES } from "./cluster_picture";
import { Frame, UNDECIDED, type ViewProps } from "./view";

interface Found {
  readonly kind: string;
  readonly ranks: readonly number[];
  readonly link: readonly number[];
  readonly cost_ms: number;
  readonly saving_ms: number | null;
  readonly severity: string;
  readonly confidence: string;
  readonly steps: readonly number[];
  readonly who: Texts;
  readonly why: Texts;
}

interface Run {
  readonly run: { readonly ranks: readonly number[]; readonly expected: number | null; readonly missing: readonly number[]; readonly steps: readonly number[]; readonly hosts: readonly string[] };
  readonly step_ms: { readonly median: number; readonly ideal: number | null };
  readonly lost_ms: number | null;
  readonly saving_ms: number | null;
  readonly wait_outside_ms: number;
  readonly clocks: readonly { readonly rank: number; readonly sigma_ns: number | null; readonly refused: boolean }[];
  readonly findings: readonly Found[];
  readonly has: { readonly links: boolean; readonly clock: boolean };
  readonly problems: readonly { readonly kind: string; readonly text: Texts }[];
  readonly ranks: readonly { readonly rank: number; readonly host: string | null; readonly stage: number | null; readonly worker: string | null; readonly span: string | null }[];
}

interface WhatIf {
  readonly now_ms: number;
  readonly then_ms: number;
}

const PATIENT = { wait: 20 }; // s: all ranks are read for the first answer
const MOST_ROWS = 64;
const NAMES = 108; // px for the names of ranks
const BANDS = 60; // px for the names of stages or hosts before them
const TALL = 360;
const VALUE_NAMES: Readonly<Record<string, string>> = {
  excess: "Own work above peers", step: "Step time", wait: "Wait", exposed: "Exposed communication", free: "Idle", computing: "Computing",
};
const ms = (value: number): string => value.toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export function View({ api }: ViewProps): JSX.Element {
  const run = selection.value.run;
  const known = run?.workers.map((worker) => worker.spans[0]?.version).join() ?? "";
  const load = useLoad(JSON.stringify([run?.name, known]), (options) => api.get<Run>("cluster", PATIENT, options));
  const [drawn, setDrawn] = useState(0);
  return (
    <Frame name="cluster" ready={!load.busy && (load.data === null || drawn > 0)}>
      <Await load={load} remedy="distributed" tall>
        {(data) => (
          <div class="verdict cluster">
            <Answer data={data} />
            <Findings data={data} />
            <Large api={api} data={data} />
            <div class="cluster-columns">
              <Ranks api={api} data={data} onDrawn={() => setDrawn((n) => n + 1)} />
              <div class="verdict-side">
                {data.has.links && <Matrix api={api} />}
                {data.ranks.some((one) => one.stage !== null) && <Pipe api={api} />}
                <WhatIfCard api={api} data={data} />
              </div>
            </div>
            {data.problems.length > 0 && (
              <Card title={t("What this run cannot tell")} testid="cluster-limits">
                <ul class="cannot">{data.problems.map((one) => <li key={one.text.en}><i aria-hidden="true">?</i> {inLanguage(one.text)}</li>)}</ul>
              </Card>
            )}
          </div>
        )}
      </Await>
    </Frame>
  );
}

function Answer({ data }: { data: Run }): JSX.Element {
  const lost = data.lost_ms ?? 0;
  const names = data.findings.slice(0, 3).map((one) => inLanguage(one.who)).join(t(", "));
  const share = data.step_ms.median > 0 ? Math.round((100 * lost) / data.step_ms.median) : 0;
  const sigma = Math.max(...data.clocks.filter((one) => !one.refused).map((one) => one.sigma_ns ?? 0), 0) / 1000;
  const refused = data.clocks.filter((one) => one.refused).length;
  const outside = data.wait_outside_ms > 0;
  const undecided = data.problems.find((one) => UNDECIDED.includes(one.kind));
  const percent = (value: number): string => `${ms(value)} ms (${data.step_ms.median > 0 ? Math.round((100 * value) / data.step_ms.median) : 0} %)`;
  const waits = `${percent(data.wait_outside_ms)} ${t("waits for ranks that were not recorded")}`;
  const nobody = data.run.missing.length ? t("no recorded rank, host or link holds the others up.") : t("no rank, host or link holds the others up.");
  const quiet = outside ? waits : undecided ? inLanguage(undecided.text) : nobody;
  return (
    <section class="card verdict-answer" aria-label={t("Answer")} data-testid="cluster-answer">
      <div>
        <h2>
          {t("Median step")} {ms(data.step_ms.median)} ms{t(": ")}
          {data.findings.length ? `${ms(lost)} ms (${share} %) ${t("lost")}${t(": ")}${names}` : quiet}
        </h2>
        {outside && data.findings.length > 0 && <p>{waits}</p>}
        {(outside || undecided) && <p><button type="button" class="link" data-testid="cluster-verdict" onClick={() => openView("verdict")}>{t("Which rank was late in the recorded steps")} · Verdict ↗</button></p>}
        {data.run.missing.length > 0 && (
          <p class="partial" data-testid="cluster-partial"><span class="tag partial">{t("partial")}</span> {t("{found} of {all} ranks were recorded").replace("{found}", String(data.run.ranks.length)).replace("{all}", String(data.run.expected ?? data.run.ranks.length + data.run.missing.length))}</p>
        )}
        {data.saving_ms !== null && data.saving_ms > 0 && <p>{t(data.findings.length > 1 ? "All of these as their peers" : "As its peers")}{t(": ")}{ms(data.step_ms.median - data.saving_ms)} ms</p>}
      </div>
      <dl>
        <div><dd>{data.run.ranks.length}{data.run.expected ? ` / ${data.run.expected}` : ""}</dd><dt>{t("ranks")}, {t(`${data.run.steps.length} ${data.run.steps.length === 1 ? "step" : "steps"}`)}</dt></div>
        <div><dd>± {sigma.toLocaleString("en-US", { maximumFractionDigits: sigma < 10 ? 1 : 0 })} µs</dd><dt>{t("clocks")}, {refused} {t("not aligned")}</dt></div>
      </dl>
    </section>
  );
}

function Findings({ data }: { data: Run }): JSX.Element | null {
  if (!data.findings.length) return null;
  const worker = (rank: number | undefined): Run["ranks"][number] | undefined => data.ranks.find((one) => one.rank === rank);
  return (
    <div class="cluster-findings">
      {data.findings.slice(0, 3).map((one, at) => {
        const own = worker(one.ranks[0] ?? one.link[0]);
        const peer = peerOf(data, one);
        return (
          <section key={at} class="card cluster-finding" data-testid="cluster-finding" data-kind={one.kind}>
            <p><b>{inLanguage(one.who)}</b><strong>{ms(one.cost_ms)} ms</strong></p>
            <p class="muted"><span>{inLanguage(one.why)}</span><span>{one.saving_ms !== null && t("saves {ms} alone").replace("{ms}", `${ms(one.saving_ms)} ms`)}</span></p>
            <p>
              <span class={`pill ${one.severity}`} data-testid="cluster-severity">{t(one.severity)}</span>
              <span class="muted">{t(`confidence ${one.confidence}`)}</span>
              {own?.worker && (
                <button type="button" class="link" data-testid="cluster-trace" onClick={() => openView("trace", { worker: own.worker!, ...(own.span ? { span: own.span } : {}) })}>
                  rank {own.rank} · {t("Show in Trace")} ↗
                </button>
              )}
              {one.link.length > 1 && data.has.links && <button type="button" class="link" data-testid="cluster-show-link" onClick={() => setParams({ large: "matrix" })}>{t("Show in Matrix")} ↗</button>}
              {own?.worker && peer?.worker && (
                <button type="button" class="link" data-testid="cluster-compare" onClick={() => openView("diff", { arun: selection.peek().run!.name, aworker: peer.worker!, brun: selection.peek().run!.name, bworker: own.worker! })}>
                  {t("Compare with")} {peer.rank}
                </button>
              )}
              {own && <button type="button" class="link" data-testid="cluster-gone" onClick={() => setParams({ fix: String(at) })}>{t("What if gone")}</button>}
            </p>
          </section>
        );
      })}
    </div>
  );
}

/** A rank that does the same work and is named by no finding: of its stage, the nearest. */
function peerOf(data: Run, finding: Found): Run["ranks"][number] | undefined {
  const own = data.ranks.find((one) => one.rank === finding.ranks[0]);
  const named = new Set(data.findings.flatMap((one) => [...one.ranks, ...one.link]));
  if (!own) return undefined;
  return data.ranks
    .filter((one) => one.worker !== null && one.stage === own.stage && !named.has(one.rank))
    .sort((a, b) => Math.abs(a.rank - own.rank) - Math.abs(b.rank - own.rank) || a.rank - b.rank)[0];
}

/** The ranks that have a row: all, or those that findings name and others evenly between them. */
function shownRanks(order: readonly number[], named: ReadonlySet<number>): readonly number[] {
  if (order.length <= MOST_ROWS) return order;
  const room = Math.max(1, MOST_ROWS - named.size);
  const evenly = new Set(Array.from({ length: room }, (_, i) => order[Math.floor((i * order.length) / room)]!));
  return order.filter((rank) => named.has(rank) || evenly.has(rank)).slice(0, MOST_ROWS);
}

function Ranks({ api, data, onDrawn }: { api: Api; data: Run; onDrawn: () => void }): JSX.Element {
  const value = param("value", "excess");
  const group = param("group", data.ranks.some((one) => one.stage !== null) ? "stage" : "rank");
  const heat = useLoad(JSON.stringify([api.capture.run, value, group]), (options) => api.get<Heat>("cluster/heat", { value, group }, options));
  const named = new Set(data.findings.flatMap((one) => [...one.ranks, ...one.link]));
  const rows = heat.data ? shownRanks(heat.data.ranks, named) : [];
  const slowest = data.findings[0]?.steps[0] ?? data.run.steps[0] ?? null;
  const step = param("cstep") === "" ? slowest : Number(param("cstep"));
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(700);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, [heat.data !== null]);
  const steps = useLoad(rows.length && data.has.clock ? JSON.stringify([api.capture.run, "steps"]) : null, (options) => api.get<Clocked>("cluster/timeline", { ranks: rows[0]!, pixels: 1 }, options));
  const window = steps.data?.steps.find((one) => one.step === step) ?? steps.data?.steps[0];
  const [from, to] = window ? [window.from, window.to] : [0, steps.data?.length_ns ?? 0];
  const heatWide = Math.min(Math.max(60, (heat.data?.steps.length ?? 1) * 14), Math.floor(width * 0.28));
  const whole = (heat.data?.ranks.length ?? 0) <= MOST_ROWS;
  const bands = whole ? (heat.data?.bands ?? []) : [];
  const hosts = useMemo(() => new Map(data.ranks.map((one) => [one.rank, one.host])), [data]);
  const names = NAMES + (bands.length ? BANDS : 0);
  const timeWide = Math.max(100, width - names - heatWide - 16);
  const aligned = rows.filter((rank) => steps.data?.all_ranks.includes(rank) ?? false);
  const clock = useLoad(steps.data && aligned.length ? JSON.stringify([api.capture.run, aligned, from, to, timeWide]) : null, (options) =>
    api.get<Clocked>("cluster/timeline", { ranks: aligned.join(","), from, to, pixels: timeWide }, options));
  const heatCanvas = useRef<HTMLCanvasElement>(null);
  const timeCanvas = useRef<HTMLCanvasElement>(null);
  const tall = Math.max(Math.min(rows.length * 26, TALL), rows.length * 5);
  const theme = dark.value;
  useEffect(() => {
    if (!heat.data || !heatCanvas.current) return;
    const began = performance.now();
    drawHeat(heatCanvas.current, heat.data, heatWide, tall, step);
    heatCanvas.current.dataset["drawMs"] = (performance.now() - began).toFixed(1);
    if (clock.data && timeCanvas.current) drawRanks(timeCanvas.current, clock.data, rows, timeWide, tall, [from, to]);
    if (!data.has.clock || clock.data || (steps.data && !aligned.length) || clock.problem || steps.problem) onDrawn();
  }, [heat.data, clock.data, clock.problem, steps.data, steps.problem, heatWide, timeWide, step, theme]);
  const row = tall / Math.max(1, rows.length);
  const drawn = useMemo(() => new Set(clock.data?.ranks.flatMap((one) => one.work.kind.map((kind) => clock.data!.kinds[kind]))), [clock.data]);
  const rankAt = (event: MouseEvent): number | undefined => rows[Math.floor(event.offsetY / row)];
  const openRank = (rank: number | undefined): void => {
    const own = data.ranks.find((one) => one.rank === rank);
    if (own?.worker) openView("trace", { worker: own.worker, ...(own.span ? { span: own.span } : {}) });
  };
  const focus = param("rank");
  const sigmas = new Map(data.clocks.filter((one) => !one.refused && one.sigma_ns !== null).map((one) => [one.rank, one.sigma_ns!]));
  const sigmaOf = (rank: number): JSX.Element | null => {
    const sigma = sigmas.get(rank);
    return sigma === undefined ? null : <small title={t("uncertainty of its clock")}>±{(sigma / 1000).toLocaleString("en-US", { maximumFractionDigits: sigma < 10_000 ? 1 : 0 })} µs</small>;
  };
  return (
    <Card
      title={t("Ranks")}
      note={t("steps, then one step on the common clock")}
      testid="cluster-ranks"
      tools={
        <>
          <Select label={t("Value")} testid="select-cluster-value" value={value} options={(heat.data?.values ?? [value]).map((one) => ({ value: one, label: t(VALUE_NAMES[one] ?? one) }))} onChange={(next) => setParams({ value: next })} />
          <Select label={t("Order by")} testid="select-cluster-group" value={group} options={["rank", "host", "stage"].map((one) => ({ value: one, label: t(`by ${one}`) }))} onChange={(next) => setParams({ group: next })} />
        </>
      }
    >
      <div class="cluster-ranks" ref={box}>
        <div class="cluster-scale" style={{ paddingLeft: `${names}px` }}>
          <span style={{ width: `${heatWide}px` }}>{stepsText(heat.data?.steps ?? [])}<Ticks wide={heatWide} texts={stepTicks(heat.data?.steps ?? [], heatWide)} /></span>
          <span style={{ width: `${timeWide}px` }}>{t("Step")} {window?.step ?? ""} · {ms((to - from) / 1e6)} ms · {t("common clock")}<Ticks wide={timeWide} texts={timeTicks(to - from)} /></span>
        </div>
        <div class="cluster-rows" style={{ height: `${tall}px` }}>
          {bands.map((band) => (
            <div key={band.first} class="cluster-band" style={{ top: `${band.first * row}px` }}><span style={{ width: `${BANDS - 4}px` }} title={aboutBand(hosts, heat.data!.ranks.slice(band.first, band.first + band.count), String(band.name ?? "?"))}>{t(group === "stage" ? "Stage" : "Host")} {band.name ?? "?"}</span></div>
          ))}
          <ul style={{ width: `${names}px` }}>
            {rows.map((rank, at) =>
              named.has(rank) || row >= 15 || String(rank) === focus ? (
                <li key={rank} style={{ top: `${Math.max(0, (at + 0.5) * row - 7.5)}px` }} class={named.has(rank) || String(rank) === focus ? "named" : ""}>
                  <button type="button" data-testid={`rank-${rank}`} aria-current={String(rank) === focus} onClick={() => openRank(rank)} title={`rank ${rank} · ${t("Show in Trace")}`}>rank {rank}</button> {sigmaOf(rank)}
                </li>
              ) : null)}
          </ul>
          <canvas ref={heatCanvas} data-testid="cluster-heat" role="img" aria-label={`${t(VALUE_NAMES[value] ?? value)}, ${heat.data?.ranks.length ?? 0} ${t("ranks")} × ${heat.data?.steps.length ?? 0} ${t("steps")}`}
            onClick={(event) => {
              const next = heat.data?.steps[Math.floor((event.offsetX / heatWide) * (heat.data?.steps.length ?? 0))];
              if (next !== undefined) setParams({ cstep: String(next) });
            }} />
          <canvas ref={timeCanvas} data-testid="cluster-timeline" role="img" aria-label={`${t("Ranks")}, ${t("Step")} ${window?.step ?? ""}`} onClick={(event) => openRank(rankAt(event))} />
        </div>
        {!whole && <p class="muted">{t("Of many ranks those that findings name and others evenly between them have a timeline; the heat map has all.")}</p>}
        {heat.data && (
          <details class="cluster-table">
            <summary>{t("As table")}</summary>
            <div class="wide-body">
              <table class="plain">
                <thead><tr><th scope="col">rank</th>{heat.data.steps.map((one) => <th key={one} scope="col" class="number">{one}</th>)}</tr></thead>
                <tbody>
                  {heat.data.ranks.slice(0, MOST_ROWS).map((rank, at) => (
                    <tr key={rank}><th scope="row">{rank}</th>{heat.data!.rows[at]!.map((one, i) => <td key={i} class="number">{one === null ? "" : ms(one / 1000)}</td>)}</tr>
                  ))}
                </tbody>
              </table>
            </div>
          </details>
        )}
        <ul class="families">
          <li>{t(value === "excess" ? "ms above peers" : "ms")}</li>
          {heat.data && toneEdges(heat.data).map((edge, tone) => <li key={tone}><i class="part" style={{ background: `var(--heat-${tone})` }} aria-hidden="true" /> {edge}</li>)}
          <li><i class="part computing" aria-hidden="true" /> {t("computing")}</li>
          <li><i class="part" style={{ background: "var(--comm-pale)" }} aria-hidden="true" /> {t("waits in a call")}</li>
          <li><i class="part dispatch" aria-hidden="true" /> {t("host")}</li>
          {drawn.has("copy") && <li><i class="part copy" aria-hidden="true" /> {t("copies")}</li>}
          {drawn.has("other") && <li><i class="part" style={{ background: "var(--unknown)" }} aria-hidden="true" /> {t("other")}</li>}
          <li><i class="part communication" aria-hidden="true" /> {t("calls")}</li>
        </ul>
        {(steps.data?.refused.length ?? 0) > 0 && <p class="muted">{t("Not drawn, clock not aligned")}{t(": ")}{steps.data!.refused.map((one) => `rank ${one.rank}`).join(", ")}</p>}
      </div>
    </Card>
  );
}

/** Name, ranks and hosts of a stage or a host. */
function aboutBand(hostOf: ReadonlyMap<number, string | null>, ranks: readonly number[], name: string): string {
  const hosts = new Set(ranks.map((rank) => hostOf.get(rank)).filter((host) => host));
  const numbers = [...ranks].sort((a, b) => a - b);
  const close = numbers.length > 1 && numbers.at(-1)! - numbers[0]! === numbers.length - 1;
  return [name, `${t("ranks")} ${close ? `${numbers[0]}–${numbers.at(-1)}` : numbers.join(", ")}`, hosts.size > 1 ? `${hosts.size} ${t("hosts")}` : [...hosts][0]].filter(Boolean).join(" · ");
}

/** Up to how many ms each tone of the heat map goes. */
function toneEdges(heat: Heat): readonly string[] {
  const edge = (tone: number): number => toneEdge(heat, tone) / 1000;
  if (edge(TONES) <= edge(0)) return ["0"];
  const digits = edge(TONES) - edge(0) >= 10 ? 0 : 1;
  const text = (value: number): string => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return Array.from({ length: TONES }, (_, tone) => (tone === 0 ? `< ${text(edge(1))}` : `${tone === TONES - 1 ? "≤ " : ""}${text(edge(tone + 1))}`));
}

/** Texts at places between 0 and 1. */
type Tick = readonly [at: number, text: string];

function Ticks({ texts, wide }: { texts: readonly Tick[]; wide: number }): JSX.Element {
  return <span class="cluster-ticks" style={{ width: `${wide}px` }}>{texts.map(([at, text]) => <i key={at} style={{ left: `${100 * at}%` }} class={at > 0.97 ? "last" : ""}>{text}</i>)}</span>;
}

function stepTicks(steps: readonly number[], wide: number): readonly Tick[] {
  const every = Math.max(1, Math.ceil((steps.length * 20) / Math.max(1, wide)));
  return steps.flatMap((step, at): Tick[] => (at % every === 0 ? [[(at + 0.5) / steps.length, String(step)]] : []));
}

/** Round numbers of milliseconds, some five of them. */
function timeTicks(ns: number): readonly Tick[] {
  if (!(ns > 0)) return [];
  const rough = ns / 5e6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const by = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough)!;
  return Array.from({ length: Math.floor(ns / 1e6 / by) + 1 }, (_, at): Tick => [(at * by * 1e6) / ns, `${Number((at * by).toPrecision(6))} ms`]);
}

const stepsText = (steps: readonly number[]): string => (steps.length > 1 ? `${t("steps")} ${steps[0]}–${steps.at(-1)}` : `${t("Step")} ${steps[0] ?? ""}`);

function Matrix({ api }: { api: Api }): JSX.Element | null {
  const load = useLoad(JSON.stringify([api.capture.run, "matrix"]), (options) => api.get<Links>("cluster/matrix", {}, options));
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = dark.value;
  useEffect(() => {
    if (load.data && canvas.current) drawLinks(canvas.current, load.data, 150);
  }, [load.data, theme]);
  if (!load.data?.links.length) return null;
  const slow = load.data.links.filter((link) => link.slow);
  const first = slow[0];
  return (
    <Card title={t("Links")} note="GB/s" testid="cluster-matrix" tools={<button type="button" class="link" data-testid="open-matrix" onClick={() => setParams({ large: "matrix" })}>{t("open")}</button>}>
      <div class="cluster-small">
        <canvas ref={canvas} role="img" aria-label={t("Bandwidth of each pair of ranks")} />
        <p>{first ? `${first.src} → ${first.dst}: ${(first.bandwidth ?? 0).toFixed(1)} GB/s${first.usual === null ? "" : `, ${t("like links")} ${first.usual.toFixed(1)}`}` : t("no link is slower than its like")}</p>
      </div>
    </Card>
  );
}

function Pipe({ api }: { api: Api }): JSX.Element | null {
  const step = param("cstep");
  const load = useLoad(JSON.stringify([api.capture.run, "pipeline", step]), (options) => api.get<Pipeline>("cluster/pipeline", step ? { step } : {}, options));
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = dark.value;
  useEffect(() => {
    if (load.data && canvas.current) drawPipeline(canvas.current, load.data, 190, 18);
  }, [load.data, theme]);
  if (!load.data?.stages.length) return null;
  const share = (one: number | null): string => (one === null ? "?" : `${(100 * one).toFixed(0)} %`);
  return (
    <Card title={t("Pipeline")} note={`${load.data.stages.length} ${t("stages")}`} testid="cluster-pipeline" tools={<button type="button" class="link" data-testid="open-pipeline" onClick={() => setParams({ large: "pipeline" })}>{t("open")}</button>}>
      <div class="cluster-small">
        <canvas ref={canvas} role="img" aria-label={t("Forward, backward and waiting of each stage")} />
        <p>{t("not computing")} {share(load.data.idle)}{load.data.ideal_bubble !== null && `, ${t("ideal")} ${share(load.data.ideal_bubble)}`}</p>
      </div>
    </Card>
  );
}

/** The matrix or the pipeline in full size, in the place above the ranks; which one stands in the address. */
function Large({ api, data }: { api: Api; data: Run }): JSX.Element | null {
  const which = param("large");
  if (which === "matrix" && data.has.links) return <LargeMatrix api={api} />;
  return which === "pipeline" ? <LargePipeline api={api} data={data} /> : null;
}

const close = <IconButton small icon="close" label="Close" testid="btn-close-large" onClick={() => setParams({ large: null, measure: null, transport: null, size: null })} />;
const MEASURES: Readonly<Record<string, readonly [name: string, unit: string]>> = { bandwidth: ["Bandwidth", "GB/s"], bytes: ["Transit Size", "MB"], time_ms: ["Transit Time", "ms"] };
const LARGE_MATRIX = 520;

interface Matrix extends Links {
  readonly transports: readonly string[];
  readonly sizes: readonly (string | { readonly class: number; readonly from_bytes: number })[];
}

function LargeMatrix({ api }: { api: Api }): JSX.Element {
  const transport = param("transport", "all");
  const size = param("size", "all");
  const measure = param("measure", "bandwidth");
  const load = useLoad(JSON.stringify([api.capture.run, "large", transport, size]), (options) => api.get<Matrix>("cluster/matrix", { transport, size }, options));
  const canvas = useRef<HTMLCanvasElement>(null);
  const [over, setOver] = useState<Links["links"][number] | null>(null);
  const theme = dark.value;
  const side = Math.max(240, Math.min(LARGE_MATRIX, window.innerHeight - 260));
  useEffect(() => {
    if (load.data && canvas.current) drawLinks(canvas.current, load.data, side, measure as "bandwidth", true);
  }, [load.data, theme, measure]);
  const data = load.data;
  const value = (one: Links["links"][number]): string => {
    const [, unit] = MEASURES[measure]!;
    const number = measure === "bytes" ? (one.bytes ?? 0) / 1e6 : measure === "time_ms" ? (one.time_ms ?? 0) : (one.bandwidth ?? 0);
    return `${number.toLocaleString("en-US", { maximumFractionDigits: 2 })} ${unit}`;
  };
  const find = (event: MouseEvent): void => {
    const place = matrixCell(data!, side, event.offsetX, event.offsetY);
    setOver(place ? (data!.links.find((one) => one.src === place[0] && one.dst === place[1]) ?? null) : null);
  };
  const named = data ? [...data.links.filter((one) => one.slow), ...data.links.filter((one) => !one.slow)].slice(0, 12) : [];
  return (
    <Card
      title={t("Matrix")} note={t("Src Rank ↓ · Dst Rank →")} testid="large-matrix"
      tools={
        <>
          <Select label={t("Value")} testid="select-measure" value={measure} options={Object.entries(MEASURES).map(([key, [name, unit]]) => ({ value: key, label: `${name} (${unit})` }))} onChange={(next) => setParams({ measure: next })} />
          <Select label={t("Transport")} testid="select-transport" value={transport} options={(data?.transports ?? [transport]).map((one) => ({ value: one, label: one }))} onChange={(next) => setParams({ transport: next })} />
          <Select label={t("Size class")} testid="select-size" value={size} options={(data?.sizes ?? [size]).map((one) => (typeof one === "string" ? { value: one, label: one } : { value: String(one.class), label: `${t("from")} ${(one.from_bytes / 1024).toLocaleString("en-US")} KB` }))} onChange={(next) => setParams({ size: next })} />
          {close}
        </>
      }
    >
      <Await load={load}>
        {() => (
          <div class="cluster-large">
            <canvas ref={canvas} role="img" aria-label={t("Bandwidth of each pair of ranks")} onMouseMove={find} onMouseLeave={() => setOver(null)} />
            <div>
              <p role="status" class="muted">{over ? `${over.src} → ${over.dst} · ${over.transport} · ${value(over)}${over.slow ? ` · ${t("slower than its like")}` : ""}` : `${data!.links.length} ${t("Links")}`}</p>
              <table class="plain">
                <thead><tr><th scope="col">src → dst</th><th scope="col">{t("Transport")}</th><th scope="col" class="number">{MEASURES[measure]![0]} ({MEASURES[measure]![1]})</th></tr></thead>
                <tbody>{named.map((one) => <tr key={`${one.src} ${one.dst}`} class={one.slow ? "strong" : ""}><td>{one.src} → {one.dst}{one.slow && ` · ${t("slower than its like")}`}</td><td>{one.transport}</td><td class="number">{value(one).replace(/ .*/, "")}</td></tr>)}</tbody>
              </table>
            </div>
          </div>
        )}
      </Await>
    </Card>
  );
}

function LargePipeline({ api, data }: { api: Api; data: Run }): JSX.Element {
  const step = param("cstep");
  const load = useLoad(JSON.stringify([api.capture.run, "large pipeline", step]), (options) => api.get<Pipeline>("cluster/pipeline", step ? { step } : {}, options));
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(800);
  const theme = dark.value;
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, [load.data !== null]);
  const tall = 34;
  useEffect(() => {
    if (load.data && canvas.current) drawPipeline(canvas.current, load.data, width, tall);
  }, [load.data, theme, width]);
  const share = (one: number | null): string => (one === null ? "?" : `${(100 * one).toFixed(0)} %`);
  return (
    <Card title={t("Pipeline")} note={load.data ? `${t("Step")} ${step || load.data.step}, ${ms(load.data.length_ns / 1e6)} ms · ${t("not computing")}: ${t("measured")} ${share(load.data.idle)}, ${t("ideal")} ${share(load.data.ideal_bubble)}` : ""} testid="large-pipeline" tools={close}>
      <Await load={load}>
        {(pipeline) => (
          <div class="cluster-pipe">
            <ul>{pipeline.stages.map((stage) => {
              const own = data.ranks.find((one) => one.rank === stage.rank);
              return <li key={stage.stage} style={{ height: `${tall}px` }}>{t("Stage")} {stage.stage} {own?.worker ? <button type="button" class="link" onClick={() => openView("trace", { worker: own.worker!, ...(own.span ? { span: own.span } : {}) })}>rank {stage.rank}</button> : <small>rank {stage.rank}</small>}</li>;
            })}</ul>
            <div ref={box}>
              <canvas ref={canvas} role="img" aria-label={t("Forward, backward and waiting of each stage")} />
              <Ticks wide={width} texts={timeTicks(pipeline.length_ns)} />
              <ul class="families">
                <li><i class="part computing" aria-hidden="true" /> {t("forward")}</li>
                <li><i class="part computing low" aria-hidden="true" /> {t("backward")}</li>
                <li><i class="part communication" aria-hidden="true" /> {t("sends or receives")}</li>
                <li><i class="part" style={{ background: "var(--comm-pale)" }} aria-hidden="true" /> {t("bubble")}</li>
              </ul>
            </div>
          </div>
        )}
      </Await>
    </Card>
  );
}

function WhatIfCard({ api, data }: { api: Api; data: Run }): JSX.Element | null {
  const own = data.findings.filter((one) => one.ranks.length || one.link.length).slice(0, 4);
  const chosen = new Set(param("fix").split(",").filter(Boolean).map(Number));
  const ranks = [...new Set(own.flatMap((one, at) => (chosen.has(at) && !one.link.length ? one.ranks : [])))];
  const transfers = own.some((one, at) => chosen.has(at) && one.link.length);
  const asked = ranks.length > 0 || transfers;
  const load = useLoad(asked ? JSON.stringify([api.capture.run, ranks, transfers]) : null, (options) =>
    api.get<WhatIf>("cluster/whatif", { ...(ranks.length ? { ranks: ranks.join(",") } : {}), transfers: transfers ? 1 : 0 }, options));
  if (!own.length) return null;
  const flip = (at: number): void => {
    const next = new Set(chosen);
    if (!next.delete(at)) next.add(at);
    setParams({ fix: [...next].join(",") || null });
  };
  return (
    <Card title={t("What if")} testid="cluster-whatif" tools={<b class="cluster-then" role="status">{asked && load.data ? `${ms(load.data.then_ms)} ms` : ""}</b>}>
      <div class="whatif">
        {own.map((one, at) => (
          <label key={at} class="cluster-fix"><input type="checkbox" checked={chosen.has(at)} onChange={() => flip(at)} /> <span>{inLanguage(one.who)}{t(": ")}{t("as its peers")}</span></label>
        ))}
        {asked && load.data && <p class="whatif-result" data-testid="cluster-then"><b>{ms(load.data.then_ms)} ms</b> {t("a step, now")} {ms(load.data.now_ms)}</p>}
      </div>
    </Card>
  );
}
