// SPDX-License-Identifier: Apache-2.0
// Diff: why two captures differ, as `stepscope diff` says it, and their operators side by side.

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { apiFor, param, setParams, type Texts } from "../state";
import { diffSide } from "../panel";
import { Bars } from "../ui/bars";
import { Select } from "../ui/controls";
import { Icon } from "../ui/icons";
import { useLoad } from "../ui/load";
import { Await, Empty } from "../ui/messages";
import { type Page, remote } from "../ui/pages";
import { Table } from "../ui/table";
import type { TraceState } from "../trace_state";
import { inLanguage, t } from "../words";
import { TimelineBox } from "./timeline";
import { Frame, Toolbar, type ViewProps } from "./view";

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
  readonly path: readonly string[];
  readonly phases: readonly Phase[];
  readonly metric: string;
  readonly metrics: readonly string[];
  readonly table: Page;
}

const METRICS: Readonly<Record<string, string>> = { host_total: "Host Duration", host_self: "Self Host Duration", device_total: "Device Duration", device_self: "Self Device Duration" };
const LEVELS: Readonly<Record<string, string>> = { kernel: "kernel", op: "operator", module: "module", part: "part", operator: "durations by operator" };

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
      <Toolbar>
        <Select label="Level" testid="select-level" value={level} options={Object.entries(LEVELS).map(([value, label]) => ({ value, label: t(label) }))} onChange={(value) => setParams({ level: value, path: null, t: null })} />
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
      <Await load={load}>{(data) => <Answer data={data} />}</Await>
      <Await load={load} tall>
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

/** The answer in one line, then what a reader must know of the comparison: other work first. */
function Answer({ data }: { data: Diff }): JSX.Element {
  return (
    <section class="card verdict-answer diff-answer" data-testid="diff-answer" data-status={data.status}>
      <h2>{inLanguage(data.answer)}</h2>
      {inLanguage(data.notes).map((note, place) => <p key={note} class={place === 0 && !data.comparable ? "table-note" : "muted"}>{note}</p>)}
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
