// SPDX-License-Identifier: Apache-2.0
// Verdict: the answer in a sentence, where each step goes, what would save time, what if, and what the capture cannot tell.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Api } from "../api";
import { auto } from "../format";
import { apiFor, counted, openView, param, selection, setParams, type Texts, verdictKey, views } from "../state";
import { Card, copyText, say } from "../ui/controls";
import { useLoad, useOthers } from "../ui/load";
import { Await, Partial } from "../ui/messages";
import { inLanguage, t } from "../words";
import { Frame, StepSelect, UNDECIDED, type ViewProps } from "./view";

interface Piece {
  readonly family: string;
  readonly ms: number;
  readonly parts: readonly { readonly name: Texts; readonly ms: number }[];
  readonly link?: Readonly<Record<string, string>> | null;
}

interface Step {
  readonly step: number | null;
  readonly total_ms: number;
  readonly device: readonly Piece[];
  readonly host: readonly Piece[];
  readonly window: readonly [number, number];
}

interface Rank {
  readonly worker: string;
  readonly rank: number | null;
  readonly simulated: boolean;
  readonly steps: readonly Step[];
  readonly left_out: number;
}

interface Chip {
  readonly worker: string;
  readonly slice: number;
  readonly name: string;
  /** Where others beside it have the same name. */
  readonly track: string;
  readonly ms: number;
}

interface Finding {
  readonly id: string;
  readonly rule: string;
  readonly family: string;
  readonly severity: string;
  readonly title: Texts;
  readonly detail: Texts;
  readonly next: Texts;
  readonly saved_ms: number;
  readonly share: number;
  readonly bound: string;
  readonly upper_ms: number | null;
  readonly ranks: readonly number[];
  readonly worker: string;
  readonly confidence_text: Texts;
  readonly severity_text: Texts;
  readonly short: Texts;
  readonly chips: readonly Chip[];
  readonly removable: readonly string[];
  readonly params: Readonly<Record<string, unknown>>;
  readonly where: readonly { readonly op: string; readonly module: string; readonly stack: string }[];
}

interface Verdict {
  readonly answer: Texts;
  readonly together: Texts;
  readonly step_ms: number;
  readonly has_steps: boolean;
  readonly saved_ms: number | null;
  readonly complete: boolean;
  readonly unfinished: Texts;
  readonly missing: readonly { readonly worker: string; readonly state: string }[];
  readonly ranks: readonly Rank[];
  readonly findings: readonly Finding[];
  readonly limits: readonly Texts[];
  readonly absent: readonly Texts[];
  readonly replay_error: number | null;
  readonly rules: { readonly asked: number; readonly not_asked: number };
}

interface WhatIf {
  readonly now_ms: number;
  readonly then_ms: number;
  readonly error: number;
  readonly bottleneck: string;
  readonly bottleneck_share: number;
}

/** Names of what a piece of a bar stands for; hue says who is the reason, a pattern that something waits or is not known. */
const FAMILIES: readonly (readonly [family: string, name: string])[] = [
  ["computing", "computing"],
  ["wait", "waits for a rank"],
  ["communication", "communication"],
  ["copy", "copies"],
  ["dispatch", "host operators, API, queue"],
  ["python", "host Python, data"],
  ["sync", "host waits for the device"],
  ["preparing", "preparing"],
  ["unknown", "not recorded"],
];
const nameOf = (family: string): string => t(FAMILIES.find(([key]) => key === family)?.[1] ?? family);
const SHORT: Readonly<Record<string, string>> = { dispatch: "host", python: "Python", sync: "host waits" };
const FEW_STEPS = 4;
const MOST_BARS = 6; // pairs of device and host; of more, the first finding would be below the window
const ROWS_WITH_LABELS = 2; // of more, the bars of the host have no room for words at 1280 × 720
const ms = (value: number): string => value.toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export function View({ api }: ViewProps): JSX.Element {
  // Another rank that comes, or grows, changes the answer of all.
  const load = useLoad(JSON.stringify([api.capture, verdictKey.value]), (options) => api.get<Verdict>("verdict", {}, options));
  const pending = useOthers(load as Parameters<typeof useOthers>[0]);
  const findings = load.busy || pending ? null : (load.data?.findings.filter((one) => one.severity !== "info").length ?? null);
  useEffect(() => {
    if (findings !== null) counted.value = { key: verdictKey.peek(), findings };
  }, [findings, load.data]);
  return (
    <Frame name="verdict" ready={!load.busy && !pending}>
      <Await load={load} tall>
        {(data) => (
          <div class="verdict">
            <Answer data={data} />
            <AllRanks api={api} asked={data.ranks.length} />
            <Steps data={data} />
            <div class="verdict-columns">
              <Findings data={data} />
              <div class="verdict-side">
                <WhatIfCard data={data} />
                <CannotTell data={data} />
              </div>
            </div>
          </div>
        )}
      </Await>
    </Frame>
  );
}

function Answer({ data }: { data: Verdict }): JSX.Element {
  const counts = data.ranks.map((rank) => rank.steps.length);
  const [least, steps] = [Math.min(...counts), Math.max(...counts, 0)];
  return (
    <section class="card verdict-answer" aria-label={t("Answer")} data-testid="verdict-answer">
      <div>
        {data.complete && <Partial />}
        {!data.complete && <p class="table-note block">{inLanguage(data.unfinished)}</p>}
        <h2>{inLanguage(data.answer)}</h2>
        {inLanguage(data.together) && <p>{inLanguage(data.together)}</p>}
      </div>
      <dl>
        <div><dd><Figure view="overview">{ms(data.step_ms)} ms</Figure></dd><dt>{!data.has_steps ? t("from the first to the last task") : t(`${steps > 1 ? "mean step" : "step"}${data.ranks.length > 1 ? ", slowest rank" : ""}`)}</dt></div>
        {data.saved_ms !== null && data.saved_ms > 0 && <div><dd><Figure view="findings">{ms(data.saved_ms)} ms</Figure></dd><dt>{t("saved by all fixes")}</dt></div>}
        <div><dd><Figure view={data.ranks.length > 1 ? "distributed" : "overview"}>{data.ranks.length} × {least < steps ? `${least}–${steps}` : steps}</Figure></dd><dt>{t("ranks × steps")}</dt></div>
      </dl>
    </section>
  );
}

/** A figure of the answer; a click opens the table behind it. */
function Figure({ view, children }: { view: string; children: ComponentChildren }): JSX.Element {
  const found = views.value.find((one) => one.slug === view);
  return found ? <button type="button" class="figure" title={found.name} onClick={() => openView(view)}>{children}</button> : <>{children}</>;
}

interface Run {
  readonly run: { readonly ranks: readonly number[] };
  readonly step_ms: { readonly median: number };
  readonly lost_ms: number | null;
  readonly wait_outside_ms: number;
  readonly findings: readonly { readonly who: Texts; readonly why: Texts }[];
  readonly problems: readonly { readonly kind: string; readonly text: Texts }[];
}

const READ_BY_ITSELF = 128; // ranks; of more, the reader says when they are read

/** A run of more ranks than the verdict asks together: what all of them say, in a line that leads to Cluster. */
function AllRanks({ api, asked }: { api: Api; asked: number }): JSX.Element | null {
  const { run } = selection.value;
  const count = run?.workers.length ?? 0;
  const wanted = count > asked && views.value.some((one) => one.slug === "cluster");
  const load = useLoad(wanted && count <= READ_BY_ITSELF ? JSON.stringify([run?.name, count, "all ranks"]) : null, (options) => api.get<Run>("cluster", { wait: 20 }, options));
  if (!wanted || load.problem) return null;
  const found = load.data;
  const lost = found?.lost_ms ?? 0;
  const share = found && found.step_ms.median > 0 ? Math.round((100 * lost) / found.step_ms.median) : 0;
  const first = found?.findings[0];
  const undecided = found?.problems.find((one) => UNDECIDED.includes(one.kind));
  return (
    <p class="card verdict-ranks" data-testid="verdict-ranks">
      <b>{count} {t("ranks")}{t(": ")}</b>
      <span>
        {found === null
          ? (count <= READ_BY_ITSELF ? `${t("Loading")} …` : "")
          : first ? `${ms(lost)} ms (${t("{share} % of the median step", { share })}) ${t("lost")}${t(": ")}${inLanguage(first.who)}${t(", ")}${inLanguage(first.why)}` : found.wait_outside_ms > 0 ? `${ms(found.wait_outside_ms)} ms ${t("waits for ranks that were not recorded")}` : undecided ? inLanguage(undecided.text) : t("no rank, host or link holds the others up.")}
      </span>
      <button type="button" class="link" onClick={() => openView("cluster")}>{t("Which rank waits for which")} · Cluster ↗</button>
    </p>
  );
}

/** Of many steps the slowest, the median and the fastest are named; beside other ranks fewer, so that the first finding stays in view. */
function chosenSteps(rank: Rank, ranks: number, all: boolean): readonly { readonly step: Step; readonly note: string }[] {
  const one = param("step");
  const picked = one ? rank.steps.filter((step) => String(step.step) === one) : [];
  if (picked.length) return picked.map((step) => ({ step, note: "" }));
  if (all || rank.steps.length === 1) return rank.steps.map((step) => ({ step, note: "" }));
  const sorted = [...rank.steps].sort((a, b) => b.total_ms - a.total_ms);
  const median = { step: sorted[Math.floor(sorted.length / 2)]!, note: t("median") };
  if (ranks > 2) return [median];
  const slowest = { step: sorted[0]!, note: t("slowest") };
  return ranks > 1 ? [slowest, median] : [slowest, median, { step: sorted.at(-1)!, note: t("fastest") }];
}

function Steps({ data }: { data: Verdict }): JSX.Element {
  const [percent, setPercent] = useState(false);
  const ranks = data.ranks.length > FEW_STEPS ? worstMedianBest(data.ranks) : data.ranks;
  const whole = ranks.every((rank) => rank.steps.length <= FEW_STEPS) && ranks.reduce((sum, rank) => sum + rank.steps.length, 0) <= MOST_BARS;
  const rows = ranks.flatMap((rank) => chosenSteps(rank, ranks.length, whole).map((row) => ({ rank, ...row })));
  const seen = new Set(rows.flatMap(({ step }) => [...step.device, ...step.host].map((piece) => piece.family)));
  const named = data.ranks.length > 1;
  const nameWidth = Math.max(104, ...rows.map(({ rank, step }) => 8 * (named ? `${rank.rank === null ? rank.worker.slice(0, 12) : `rank ${rank.rank}`} ${t("Step")} ${step.step ?? ""}`.length : 0)));
  const longest = Math.max(...rows.map(({ step }) => step.total_ms), 0);
  const numbers = [...new Set(data.ranks.flatMap((rank) => rank.steps.map(({ step }) => step)))].filter((step) => step !== null);
  const many = whole ? [] : ranks.filter((rank) => rank.steps.length > 1);
  return (
    <Card
      title={t("Where the step goes")}
      note={t("upper bar device, lower bar host; each sums to 100 % · click a part to open it in Trace")}
      testid="verdict-steps"
      tools={
        <>
          {numbers.length > 1 && <StepSelect steps={numbers} step={param("step")} />}
          <span class="segments" role="group" aria-label={t("Units")}>
            <button type="button" aria-pressed={!percent} onClick={() => setPercent(false)}>ms</button>
            <button type="button" aria-pressed={percent} onClick={() => setPercent(true)}>%</button>
          </span>
        </>
      }
    >
      <div class="step-bars" style={{ "--names": `${nameWidth}px` }}>
        {rows.map(({ rank, step, note }) => (
          <div key={`${rank.worker} ${step.step}`} class="step-row">
            <span class="step-name" title={named ? rank.worker : undefined}>
              {named && <b>{rank.rank === null ? rank.worker : `rank ${rank.rank}`}</b>}
              {step.step !== null && <span>{named ? ` ${t("Step")} ${step.step}` : <b>{t("Step")} {step.step}</b>}</span>}
              {note && <small>{note}</small>}
            </span>
            <div class="step-pair">
              {step.device.length > 0 && <Bar label={`${t("device")} ${step.step ?? ""}`} pieces={step.device} total={step.total_ms} scale={longest} percent={percent} worker={rank.worker} window={step.window} />}
              <Bar label={`${t("host")} ${step.step ?? ""}`} pieces={step.host} total={step.total_ms} scale={longest} percent={percent} worker={rank.worker} window={step.window} thin={step.device.length > 0 && rows.length > ROWS_WITH_LABELS} />
            </div>
            <span class="step-total">{ms(step.total_ms)} ms</span>
          </div>
        ))}
      </div>
      {many.map((rank) => <AllSteps key={rank.worker} rank={rank} name={named ? (rank.rank === null ? rank.worker : `rank ${rank.rank}`) : t("All steps")} width={nameWidth} low={many.length > 1} />)}
      <ul class="families">
        {FAMILIES.filter(([family]) => seen.has(family)).map(([family, name]) => <li key={family}><i class={`part ${family}`} aria-hidden="true" /> {t(name)}</li>)}
      </ul>
    </Card>
  );
}

/** Grounds of the parts without their patterns, which need more room than a column has. */
const FLAT: Readonly<Record<string, string>> = {
  computing: "--compute", wait: "--comm-pale", communication: "--comm", copy: "--copy", dispatch: "--host", python: "--python", sync: "--host-pale", preparing: "--host-pale",
};

function columnOf(step: Step): string {
  const pieces = step.device.length ? step.device : step.host;
  const whole = pieces.reduce((sum, piece) => sum + piece.ms, 0) || 1;
  let at = 0;
  return `linear-gradient(to top, ${pieces.map((piece) => `var(${FLAT[piece.family] ?? "--unknown"}) ${at}% ${(at += (100 * piece.ms) / whole)}%`).join(", ")})`;
}

/** All steps of a rank in their order, each a column as high as the step is long; a click shows one of them as a bar. */
function AllSteps({ rank, name, width, low }: { rank: Rank; name: string; width: number; low: boolean }): JSX.Element {
  const lengths = rank.steps.map((step) => step.total_ms);
  const [least, most] = [Math.min(...lengths), Math.max(...lengths)];
  const open = (event: MouseEvent): void => {
    const step = rank.steps[[...(event.currentTarget as Element).children].indexOf(event.target as Element)]?.step ?? null;
    if (step !== null) setParams({ step: String(step) });
  };
  return (
    <div class={`all-steps${low ? " low" : ""}`} style={{ "--names": `${width}px` }}>
      <span class="step-name" title={name}><b>{name}</b></span>
      <div class="all-columns" role="img" aria-label={`${rank.steps.length} ${t("steps")}: ${ms(least)} – ${ms(most)} ms`} data-testid="all-steps" onClick={open}>
        {rank.steps.map((step, at) => (
          <i key={at} title={`${t("Step")} ${step.step ?? "?"} · ${ms(step.total_ms)} ms`} style={{ height: `${(100 * step.total_ms) / (most || 1)}%`, background: columnOf(step) }} />
        ))}
      </div>
      <span class="step-total">{rank.left_out > 0 ? t("{count} more", { count: rank.left_out }) : ""}</span>
    </div>
  );
}

function worstMedianBest(ranks: readonly Rank[]): readonly Rank[] {
  const mean = (rank: Rank): number => rank.steps.reduce((sum, step) => sum + step.total_ms, 0) / Math.max(1, rank.steps.length);
  const sorted = [...ranks].sort((a, b) => mean(b) - mean(a));
  return [sorted[0]!, sorted[Math.floor(sorted.length / 2)]!, sorted.at(-1)!];
}

/** Px that a label needs at most, with its ground: in the widest of the fonts that the page may get. */
const widthOf = (text: string): number => 16 + [...text].reduce((sum, one) => sum + (one > "\u2e7f" ? 13 : 8.6), 0);

function Bar(props: {
  label: string; pieces: readonly Piece[]; total: number; scale: number; percent: boolean; worker: string; window: readonly [number, number]; thin?: boolean;
}): JSX.Element {
  const whole = props.pieces.reduce((sum, piece) => sum + piece.ms, 0) || 1;
  const wide = props.percent ? 100 : (100 * props.total) / (props.scale || 1);
  const box = useRef<HTMLDivElement>(null);
  const [room, setRoom] = useState(0);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setRoom(entry!.contentRect.width));
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  const open = (piece: Piece): void =>
    openView("trace", { worker: props.worker, ...(piece.link ?? { t: `${props.window[0]}_${props.window[1]}` }) });
  return (
    <div ref={box} class={`part-bar${props.thin ? " thin" : ""}`} style={{ width: `${wide}%` }} role="group" aria-label={props.label}>
      {props.pieces.map((piece) => {
        const share = (100 * piece.ms) / whole;
        const shown = props.percent ? `${share.toFixed(0)} %` : ms(piece.ms);
        const inner = piece.parts.length > 1 ? `\n${piece.parts.map((part) => `  ${inLanguage(part.name)} ${ms(part.ms)} ms`).join("\n")}` : "";
        const full = `${nameOf(piece.family)} ${ms(piece.ms)} ms, ${share.toFixed(1)} %`;
        const texts = props.thin ? [] : [`${t(SHORT[piece.family] ?? nameOf(piece.family))} ${shown}`, shown];
        const text = texts.find((one) => widthOf(one) <= (room * share) / 100) ?? "";
        return (
          <button
            key={piece.family} type="button" class={`part ${piece.family}`} style={{ width: `${share}%` }} title={full + inner} aria-label={full.includes(text) ? full : `${text}: ${full}`}
            data-testid={`part-${piece.family}`} data-ms={piece.ms} onClick={() => open(piece)}
          >
            {text && <span>{text}</span>}
          </button>
        );
      })}
    </div>
  );
}

/** Where a reader goes when no rule found anything: the operators, else the kernels of a capture that has no operators. */
function WhereNext({ onDevice }: { onDevice: boolean }): JSX.Element | null {
  const has = (slug: string): boolean => views.value.some((one) => one.slug === slug);
  if (has("operator")) return <button type="button" class="button" data-testid="to-operator" onClick={() => openView("operator", { t: JSON.stringify({ sort: [[onDevice ? "device_self" : "host_self", true]], filters: {} }) })}>{t(onDevice ? "Operator, by device time" : "Operator, by host time")}</button>;
  return has("kernel") ? <button type="button" class="button" data-testid="to-kernel" onClick={() => openView("kernel")}>{views.value.find((one) => one.slug === "kernel")!.name}</button> : null;
}

/** Two ranks may have a finding of one rule each. */
const keyOf = (finding: Finding): string => `${finding.worker} ${finding.id}`;

function Findings({ data }: { data: Verdict }): JSX.Element {
  const { findings, replay_error: error, rules } = data;
  const onDevice = data.ranks.some((rank) => rank.steps.some((step) => step.device.length > 0));
  const shown = findings.filter((one) => one.severity !== "info");
  const notes = findings.filter((one) => one.severity === "info");
  const [open, setOpen] = useState<string | null>(null);
  const current = open ?? (shown[0] ? keyOf(shown[0]) : "");
  const note = error === null ? t("ranked by ms saved per step") : `${t("ranked by ms saved per step, by replay of this capture")} (± ${(error * 100).toFixed(1)} %)`;
  return (
    <Card title={t("Findings")} note={note} testid="verdict-findings" tools={findings.length ? <button type="button" class="link" onClick={() => openView("findings")}>{t("All findings")}</button> : undefined}>
      {shown.length === 0 && (
        <p class="verdict-none">
          {t("{asked} rules asked, {not} could not be asked.").replace("{asked}", String(rules.asked)).replace("{not}", String(rules.not_asked))} {t("Nothing costs more than 2 % of a step. Faster kernels are the way.")}{" "}
          <WhereNext onDevice={onDevice} />
        </p>
      )}
      <ol class="verdict-list">
        {shown.map((finding) => (
          <li key={keyOf(finding)} class={keyOf(finding) === current ? "open" : ""} data-rule={finding.rule} data-testid="verdict-finding">
            <button type="button" class="verdict-head" aria-expanded={keyOf(finding) === current} onClick={() => setOpen(keyOf(finding) === current ? "-" : keyOf(finding))}>
              <span class="verdict-saved">
                <b>{finding.bound === "upper" ? "≤ " : ""}{ms(finding.saved_ms)} ms</b> <small>{(finding.share * 100).toFixed(1)} %</small>
                <i class="meter" aria-hidden="true"><i style={{ width: `${Math.min(100, finding.share * 100)}%` }} /></i>
              </span>
              <span class="verdict-title">{inLanguage(finding.title)}<small>{keyOf(finding) === current ? inLanguage(finding.detail) : inLanguage(finding.next)}</small></span>
              <span class="verdict-sure">{inLanguage(finding.confidence_text)}</span>
              <span class={`pill ${finding.severity}`}>{inLanguage(finding.severity_text)}</span>
            </button>
            {keyOf(finding) === current && (
              <div class="verdict-body">
                {finding.where.slice(0, 2).map((place, at) => <p key={at} class="muted">{[place.op, place.module, place.stack].filter(Boolean).join(" · ")}</p>)}
                {finding.chips.length > 0 && (
                  <p class="evidence">
                    {finding.chips.filter((chip, at) => at === 0 || chip.ms >= finding.chips[0]!.ms / 100).map((chip) => (
                      <button key={chip.slice} type="button" class="chip" data-testid="evidence" title={`${chip.name} — ${t("Show in Trace")}`} onClick={() => openView("trace", { worker: chip.worker, slice: String(chip.slice) })}>
                        <span>{chip.name}{chip.track && `, ${chip.track}`}</span><b> · {auto(chip.ms * 1000, "us")} ↗</b>
                      </button>
                    ))}
                  </p>
                )}
                {typeof finding.params["late_rank"] === "number" && finding.params["late_rank"] >= 0 && views.value.some((one) => one.slug === "cluster") && (
                  <p><button type="button" class="link" data-testid="to-cluster" onClick={() => openView("cluster", { rank: String(finding.params["late_rank"]) })}>{t("Which rank waits for which")} · Cluster ↗</button></p>
                )}
                <p><b>{t("Next")}</b> · {inLanguage(finding.next)}</p>
              </div>
            )}
          </li>
        ))}
      </ol>
      {notes.map((one) => <p key={keyOf(one)} class="verdict-note">{inLanguage(one.title)}</p>)}
    </Card>
  );
}

/** How much of each cause is gone, from the address: `id:percent`. */
function readRemoved(): Map<string, number> {
  return new Map(param("remove").split(",").filter(Boolean).map((item) => [item.slice(0, item.lastIndexOf(":")), Number(item.slice(item.lastIndexOf(":") + 1)) || 0]));
}

function WhatIfCard({ data }: { data: Verdict }): JSX.Element | null {
  const counted = data.findings.filter((one) => one.severity !== "info");
  const worker = counted.find((one) => one.removable.includes(one.worker))?.worker ?? "";
  const own = counted
    .filter((one) => one.removable.includes(worker))
    .filter((one, at, all) => all.findIndex((other) => other.id === one.id) === at) // ids are of one rank: that of the worker
    .slice(0, 4);
  const removed = readRemoved();
  const asked = own.filter((one) => removed.get(one.id)).map((one) => `${one.id}:${removed.get(one.id)}`).join(",");
  const { run } = selection.value;
  const span = run?.workers.find((one) => one.name === worker)?.spans[0]; // the findings are of each rank's first
  const key = own.length ? JSON.stringify([run?.name, worker, span?.version, asked]) : null;
  const load = useLoad(key, (options) => apiFor([run?.name ?? "", worker, span?.name ?? ""]).get<WhatIf>("verdict/whatif", { remove: asked }, options));
  if (!own.length) return null;
  const set = (id: string, percent: number): void => {
    const next = new Map(removed).set(id, percent);
    setParams({ remove: [...next].filter(([, value]) => value > 0).map(([name, value]) => `${name}:${value}`).join(",") || null });
  };
  const said = (percent: number): string => (percent === 0 ? t("as now") : percent === 100 ? t("gone") : `−${percent} %`);
  return (
    <Card title={t("What if")} testid="verdict-whatif" tools={<button type="button" class="link" disabled={!asked} onClick={() => setParams({ remove: null })}>{t("Reset")}</button>}>
      <div class="whatif">
        {own.map((one) => {
          const percent = removed.get(one.id) ?? 0;
          return (
            <label key={one.id}>
              <span>{inLanguage(one.short)}</span><b>{said(percent)}</b>
              <input type="range" style={{ "--at": percent }} min={0} max={100} step={5} value={percent} aria-valuetext={said(percent)} data-testid={`whatif-${one.rule}`} onChange={(event) => set(one.id, Number(event.currentTarget.value))} />
            </label>
          );
        })}
        {load.data && (
          <p class="whatif-result" role="status" data-testid="whatif-result">
            <b>{ms(data.step_ms - (load.data.now_ms - load.data.then_ms))} ms</b> {t("a step, now")} {ms(data.step_ms)} (± {ms(load.data.now_ms * load.data.error)})
            {data.ranks.length > 1 && <small>{t("saved on the rank that was replayed")}{t(": ")}{worker}</small>}
            {load.data.bottleneck && <small>{t("Then first")}: {t(load.data.bottleneck)}, {(load.data.bottleneck_share * 100).toFixed(0)} % {t("of the critical path")}</small>}
          </p>
        )}
      </div>
    </Card>
  );
}

/** Names of switches, such as `with_stack`, are copied by a click. */
function withSwitches(text: string): (string | JSX.Element)[] {
  return text.split(/\b([a-z]+(?:_[a-z]+)+)\b/).map((part, at) => at % 2 === 0 ? part : (
    <button key={at} type="button" class="switch" title={t("Copy")} onClick={() => void copyText(part).then(() => say(`${t("Copied")}: ${part}`))}>{part}</button>
  ));
}

function CannotTell({ data }: { data: Verdict }): JSX.Element | null {
  const all = [...data.limits, ...data.absent];
  if (!all.length) return null;
  return (
    <Card title={t("What this capture cannot tell")} testid="verdict-limits">
      <ul class="cannot">{all.map((text) => <li key={text.en}><i aria-hidden="true">?</i> <span>{withSwitches(inLanguage(text))}</span></li>)}</ul>
    </Card>
  );
}
