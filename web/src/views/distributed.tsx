// SPDX-License-Identifier: Apache-2.0
// Distributed: all workers of a run beside each other.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Api } from "../api";
import { auto, middle, three } from "../format";
import { param, selection, setParams } from "../state";
import { Bars } from "../ui/bars";
import { Card, Select } from "../ui/controls";
import { useLoad, useOthers } from "../ui/load";
import { Await, Empty } from "../ui/messages";
import { remote } from "../ui/pages";
import { Table } from "../ui/table";
import { t } from "../words";
import { Frame, Toolbar, type ViewProps } from "./view";

interface Block {
  readonly title: string;
  readonly series: readonly string[];
  readonly rows: readonly (readonly number[] | null)[];
}

interface Overview {
  readonly steps: readonly (number | string)[];
  readonly step: string | number;
  readonly workers: readonly string[];
  readonly missing: readonly { worker: string; state: string }[];
  readonly computation: Block | null;
  readonly synchronizing: Block | null;
}

interface Slow {
  readonly rows: readonly { worker: string; step_us: number | null; behind_us: number; cause: string | null; operators: readonly { name: string; difference_us: number }[] }[];
}

export function View({ api }: ViewProps): JSX.Element {
  const step = param("dstep", "all");
  const order = param("order", "worker");
  const most = Number(param("n", "0"));
  const [tableReady, setTableReady] = useState(false);
  const [slowReady, setSlowReady] = useState(0); // for so many workers
  const waiting = selection.value.run?.workers.map((worker) => worker.spans[0]?.state).join() ?? "";
  const load = useLoad(JSON.stringify([api.capture, step, waiting]), (options) => api.get<Overview>("distributed/overview", { step }, options));
  const data = load.data;
  const pending = useOthers(load);
  const communicates = data?.synchronizing?.rows.some((row) => row !== null) ?? false;
  const worker = param("ops") || data?.workers[0] || "";
  return (
    <Frame name="distributed" ready={!load.busy && !pending && (tableReady || !communicates) && (data === null || slowReady === data.workers.length)}>
      <Toolbar>
        <Select label={t("Step")} testid="select-step" value={String(step)} options={[{ value: "all", label: t("all") }, ...(data?.steps ?? []).map((one) => ({ value: String(one), label: String(one) }))]} onChange={(value) => setParams({ dstep: value })} />
        <Select label={t("Order by")} testid="select-order" value={order} options={[{ value: "worker", label: "Worker" }, { value: "total", label: "Total" }, ...(data?.computation?.series ?? []).map((one) => ({ value: one, label: one }))]} onChange={(value) => setParams({ order: value })} />
        <Select label={t("Top N")} testid="select-top" value={String(most)} options={[0, 8, 16, 32, 64].map((one) => ({ value: String(one), label: one ? String(one) : t("all") }))} onChange={(value) => setParams({ n: value })} />
        {(data?.missing.length ?? 0) > 0 && <span class="table-note">{data!.missing.map((one) => `${one.worker}: ${one.state}`).join(", ")}</span>}
      </Toolbar>
      <Await load={load} remedy="distributed" tall>
        {(answer) => (
          <div class="stack flush">
            <div class="grid2">
              {answer.computation && <Chart id="computation" block={answer.computation} workers={answer.workers} order={order} most={most} apart={["Bubble", "Preparing"]} />}
              {answer.synchronizing && communicates && <Chart id="synchronizing" block={answer.synchronizing} workers={answer.workers} order={order === "worker" ? order : "total"} most={most} apart={[]} />}
            </div>
            {!communicates && <Empty title={t("No communication files in this run")} remedy="communication" />}
            {communicates && <Card
              title="Communication Operations Stats"
              class=""
              tools={<Select label={t("Worker")} testid="select-worker" value={worker} options={answer.workers.map((one) => ({ value: one, label: one }))} onChange={(value) => setParams({ ops: value })} />}
            >
              <Table id="distributed-ops" fit label="Communication Operations Stats" source={remote(api, "distributed/ops", { worker, step: step === "all" ? null : step })} onPage={() => setTableReady(true)} onProblem={() => setTableReady(true)} remedy="communication" />
            </Card>}
            <SlowRanks key={answer.workers.length} api={api} onShown={() => setSlowReady(answer.workers.length)} />
          </div>
        )}
      </Await>
    </Frame>
  );
}

function Chart(props: { id: string; block: Block; workers: readonly string[]; order: string; most: number; apart: readonly string[] }): JSX.Element {
  const { block } = props;
  // What is not part of the bar's length (bubbles, preparing) is left to the table twin.
  const shown = block.series.map((name, at) => ({ name, at })).filter(({ name }) => !props.apart.includes(name));
  let rows = props.workers.map((worker, index) => ({ worker, row: block.rows[index] ?? null }));
  // Many workers: the slowest first, since nobody reads a thousand bars.
  const order = props.order === "worker" && rows.length > 32 ? "total" : props.order;
  if (order !== "worker") {
    const key = block.series.indexOf(order);
    const value = (row: readonly number[] | null): number => (row === null ? -1 : key >= 0 ? row[key]! : shown.reduce((sum, { at }) => sum + row[at]!, 0));
    rows = [...rows].sort((a, b) => value(b.row) - value(a.row));
  }
  if (props.most) rows = rows.slice(0, props.most);
  return (
    <Bars
      id={props.id}
      title={block.title}
      axis={t("Worker")}
      many={32}
      series={shown.map(({ name }) => name)}
      bars={rows.map(({ worker, row }) => ({ label: worker, values: row === null ? null : shown.map(({ at }) => row[at] ?? 0) }))}
    />
  );
}

function SlowRanks({ api, onShown }: { api: Api; onShown: () => void }): JSX.Element {
  const load = useLoad(JSON.stringify(api.capture), (options) => api.get<Slow>("distributed/slow", {}, options));
  useEffect(() => { if (!load.busy) onShown(); }, [load.busy]);
  return (
    <Card title={t("Slow ranks")} testid="table-slow">
      <Await load={load}>
        {(data) => (
          <table class="plain">
            <thead><tr><th scope="col">{t("Worker")}</th><th scope="col" class="number">Step (us)</th><th scope="col" class="number">{t("behind the fastest")} (us)</th><th scope="col">Cause</th><th scope="col">Operators</th></tr></thead>
            <tbody>
              {data.rows.map((row) => (
                <tr key={row.worker}>
                  <td class="nowrap">{row.worker}</td>
                  <td class="number">{row.step_us === null ? "" : three(row.step_us)}</td>
                  <td class="number">{three(row.behind_us)}</td>
                  <td class="nowrap">{row.cause ? t(row.cause) : "–"}</td>
                  <td title={row.operators.map((one) => one.name).join("\n")}>{row.operators.map((one) => `${middle(one.name, 56)} +${auto(one.difference_us, "us")}`).join(", ")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Await>
    </Card>
  );
}
