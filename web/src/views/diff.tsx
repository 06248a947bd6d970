// SPDX-License-Identifier: Apache-2.0
// Diff: why two captures differ, as `stepscope diff` says it, and their operators side by side.

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { language } from "../settings";
import { apiFor, param, setParams, type Texts } from "../state";
import { diffSide } from "../panel";
import { Bars } from "../ui/bars";
import { Card, copyText, say, Select } from "../ui/controls";
import { Icon } from "../ui/icons";
import { useLoad } from "../ui/load";
import { Await, Empty } from "../ui/messages";
import { type Page, remote } from "../ui/pages";
import { Table } from "../ui/table";
import type { TraceState } from "../trace_state";
import { inLanguage, t } from "../words";
import { TimelineBox } from "./timeline";
import { Frame, Toolbar, type ViewProps } from "./view";
import { type Check, ComparableCard, type Gate, GateCard, type Implementation, ImplementationsCard, type Samples, StepsCard, type Waterfall, WaterfallTable } from "../ui/waterfall";

type Side = ReturnType<typeof diffSide>;

interface Phase {
  readonly name: string;
  readonly baseline: number;
  readonly experiment: number;
  readonly diff: number;
  readonly baseline_sum: number;
  readonly experiment_sum: number;
  readonly diff_sum: number;
  readonly children: boolean;
}

interface Diff {
  readonly answer: Texts;
  readonly notes: Readonly<Record<keyof Texts, readonly string[]>>;
  readonly status: string;
  readonly comparable: boolean;
  readonly base_ms: number;
  readonly new_ms: number;
  readonly waterfall: Waterfall;
  readonly checks: readonly Check[];
  readonly samples: Samples;
  readonly implementations: readonly Implementation[];
  readonly gate: Gate | null;
  readonly path: readonly string[];
  readonly phases: readonly Phase[];
  readonly metric: string;
  readonly metrics: readonly string[];
  readonly table: Page;
}

const METRICS: Readonly<Record<string, string>> = { host_total: "Host Duration", host_self: "Self Host Duration", device_total: "Device Duration", device_self: "Self Device Duration" };
const LEVELS: Readonly<Record<string, string>> = { part: "Part", module: "Module", op: "Operator", kernel: "Kernel", operator: "Durations" };

const pathOf = (text: string): string[] => {
  try {
    return text ? (JSON.parse(text) as string[]) : [];
  } catch {
    return [];
  }
};

export function View(_: ViewProps): JSX.Element {
  const [a, b] = [diffSide("a"), diffSide("b")];
  const [ready, setReady] = useState(false);
  if (!a.run || !a.worker || !a.span || !b.run || !b.worker || !b.span) return <Empty title={t("Nothing to show yet")} />;
  const side = (one: typeof a): string => new URLSearchParams({ run: one.run!.name, worker: one.worker!.name, span: one.span!.name }).toString();
  const level = param("level", "kernel");
  const metric = param("metric", "host_total");
  const path = pathOf(param("path"));
  const query = { a: side(a), b: side(b), level, metric, path: JSON.stringify(path) };
  const api = apiFor([a.run.name, a.worker.name, a.span.name], [b.run.name, b.worker.name, b.span.name]);
  const version = `${a.span.version}${b.span.version}`;
  const load = useLoad(JSON.stringify([query, version]), (options) => api.get<Diff>("diff", { ...query, limit: 0 }, options));
  const same = query.a === query.b;
  const timelines = param("timelines") === "1";
  const source = remote<Diff>(api, "diff", query, (answer) => answer.table);
  return (
    <Frame name="diff" ready={!load.busy && ready}>
      <Await load={load} tall>
        {(data) => (
          <div class="verdict diff">
            <Answer data={data} />
            <div class="diff-columns">
              <Card
                title={t("Why the step changed")}
                note={t("rows sum to the difference")}
                testid="diff-waterfall"
                tools={
                  <span class="segments" role="group" aria-label={t("Rows")} data-testid="select-level">
                    {Object.entries(LEVELS).map(([value, label]) => <button key={value} type="button" aria-pressed={level === value} data-testid={`level-${value}`} onClick={() => setParams({ level: value === "kernel" ? null : value, path: null, t: null })}>{t(label)}</button>)}
                  </span>
                }
              >
                <WaterfallTable data={data.waterfall} />
              </Card>
              <div class="verdict-side">
                <GateCard gate={data.gate} onMarkdown={() => void fetch(api.url("diff", { ...query, format: "md", lang: language.peek() })).then((answer) => answer.text()).then(copyText).then(() => say(t("Copied")))} />
                <ComparableCard checks={data.checks} notes={inLanguage(data.notes).slice(data.checks.some((one) => one.same === false && one.about !== "note") ? 1 : 0)} />
                <StepsCard samples={data.samples} />
                <ImplementationsCard rows={data.implementations} />
              </div>
            </div>
          </div>
        )}
      </Await>
      <Toolbar>
        {level === "operator" && <Select label={t("Operator View")} testid="select-metric" value={metric} options={Object.entries(METRICS).map(([value, label]) => ({ value, label }))} onChange={(value) => setParams({ metric: value, t: null })} />}
        {path.length > 0 && (
          <span class="row">
            <button type="button" class="button" data-testid="btn-back" onClick={() => setParams({ path: path.length > 1 ? JSON.stringify(path.slice(0, -1)) : null, t: null })}><Icon name="left" />{t("Go Back")}</button>
            <span class="muted">{path.join(" › ")}</span>
          </span>
        )}
        <button type="button" class="button" aria-pressed={timelines} data-testid="btn-timelines" onClick={() => setParams({ timelines: timelines ? null : "1" })}>{t("Timelines")}</button>
        {same && <span class="table-note">{t("Baseline")} = {t("Experimental")}</span>}
      </Toolbar>
      <Await load={load} quiet>
        {(data) =>
          data.phases.length > 0 && (
            <div class="grid2">
              <Bars
                id="comparison"
                title={t("Execution Comparison")}
                axis=""
                side
                series={["Baseline", "Experiment"]}
                bars={data.phases.map((phase) => ({ label: phase.name, values: [phase.baseline, phase.experiment] }))}
                lines={[{ name: "Baseline (accumulated)", values: data.phases.map((phase) => phase.baseline_sum) }, { name: "Experiment (accumulated)", values: data.phases.map((phase) => phase.experiment_sum) }]}
                onPick={(bar) => drill(data, bar.label, path)}
              />
              <Bars
                id="difference"
                title={t("Execution Diff")}
                axis=""
                side
                series={["Diff"]}
                bars={data.phases.map((phase) => ({ label: phase.name, values: [phase.diff] }))}
                lines={[{ name: "Accumulated Diff", values: data.phases.map((phase) => phase.diff_sum) }]}
                onPick={(bar) => drill(data, bar.label, path)}
              />
            </div>
          )
        }
      </Await>
      {timelines && <Timelines key={query.a + query.b} a={a} b={b} />}
      <Table
        id={`diff-${level}`}
        key={level + metric}
        label={t("Operator View")}
        source={source}
        saved={{ value: param("t"), save: (value) => setParams({ t: value }) }}
        onPage={() => setReady(true)}
        onProblem={() => setReady(true)}
      />
    </Frame>
  );
}

/** The answer in one line; other work or another way of recording is said before any figure is believed. */
function Answer({ data }: { data: Diff }): JSX.Element {
  const ms = (value: number): string => `${value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: value < 10 ? 3 : 2 })} ms`;
  const [first] = inLanguage(data.notes);
  return (
    <section class="card verdict-answer" data-testid="diff-answer" data-status={data.status}>
      <div>
        <h2>{inLanguage(data.answer)}</h2>
        {first && <p class={data.comparable ? "muted" : "table-note block"}>{first}</p>}
      </div>
      <dl>
        <div><dd>{ms(data.base_ms)}</dd><dt>{t("Baseline")}</dt></div>
        <div><dd>{ms(data.new_ms)}</dd><dt>{t("Experimental")}</dt></div>
      </dl>
    </section>
  );
}

/** Both captures below each other in one timeline, so that zooming and moving act on both. */
function Timelines({ a, b }: { a: Side; b: Side }): JSX.Element {
  const entry = (one: Side, label: string): TraceState["workers"][number] => ({ run: one.run!.name, worker: one.worker!.name, span: one.span!.name, version: one.span!.version, label: `${label}: ${one.run!.name} / ${one.worker!.name}` });
  const workers = [entry(a, "Baseline"), entry(b, "Experimental")];
  const api = useMemo(() => apiFor([a.run!.name, a.worker!.name, a.span!.name]), []);
  return (
    <section class="card timelines" aria-label={t("Timelines")}>
      <TimelineBox api={api} workers={workers} prefix="tl." begin={{ ranks: encodeURIComponent(workers[1]!.label!), rowheight: "6" }} together />
    </section>
  );
}

function drill(data: Diff, name: string, path: readonly string[]): void {
  if (data.phases.find((phase) => phase.name === name)?.children) setParams({ path: JSON.stringify([...path, name]), t: null });
}
