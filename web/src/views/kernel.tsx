// SPDX-License-Identifier: Apache-2.0
// NPU Kernel / GPU Kernel: what ran on the cores, by kernel, type or call.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Api } from "../api";
import { three, timeText, whole } from "../format";
import { openView, param, refresh, setParams } from "../state";
import { LongName, Search, Select, TopChoice } from "../ui/controls";
import { useLoad } from "../ui/load";
import { Await } from "../ui/messages";
import { type Column, local, type Page, remote, type Row } from "../ui/pages";
import { Pie, type PieData } from "../ui/pie";
import { Table } from "../ui/table";
import { t } from "../words";
import { Frame, Toolbar, type ViewProps } from "./view";

const NPU_GROUPS = [
  { value: "all", label: "All" },
  { value: "statistic", label: "Statistic" },
  { value: "type", label: "Type" },
  { value: "name_shape", label: "Name + Input Shapes" },
];
const GPU_GROUPS = [
  { value: "name", label: "Kernel Name" },
  { value: "properties", label: "Kernel Properties + Op Name" },
  { value: "all", label: "All" },
];

interface Pies {
  readonly pies: PieData[];
  readonly cores?: readonly string[];
}

interface Calls {
  readonly name: string;
  readonly calls: number;
  readonly rows: readonly { start_ns: number; duration_us: number; wait_us: number | null; step: number | null; slice: number | null; op: string | null }[];
  readonly histogram: { readonly edges_us: readonly number[]; readonly counts: readonly number[] };
}

export function View({ api, device }: ViewProps): JSX.Element {
  const npu = device === "npu";
  const groups = npu ? NPU_GROUPS : GPU_GROUPS;
  const fallback = npu ? "statistic" : "name";
  const group = groups.some((one) => one.value === param("group")) ? param("group") : fallback;
  const q = param("q");
  const step = param("step") || null;
  const top = Number(param("top", "10"));
  const comm = param("comm", "1");
  const cores = param("core") ? param("core").split("|") : [];
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const [page, setPage] = useState<Page | null>(null);
  const [failed, setFailed] = useState(false);
  const query = { group, step, comm, core: cores };
  const pies = useLoad(JSON.stringify([api.capture, step, comm, top]), (options) => api.get<Pies>("kernels/pies", { step, comm, top }, options));
  useEffect(() => {
    // The kind of device is known once the capture has been read; the list of runs has it.
    if (device === "" && pies.data) void refresh();
  }, [device, pies.data]);
  const set = (changes: Record<string, string | null>): void => {
    setOpen(new Set());
    setParams(changes);
  };
  const toggleCore = (core: string): void => {
    const next = cores.includes(core) ? cores.filter((one) => one !== core) : [...cores, core];
    set({ core: next.length ? next.join("|") : null });
  };
  const openRow = (index: number): void => {
    const next = new Set(open);
    if (!next.delete(index)) next.add(index);
    setOpen(next);
  };
  const sliceAt = page?.columns.findIndex((column) => column.key === "slice") ?? -1;
  const showInTrace = (row: Row): void => {
    const slice = sliceAt >= 0 ? row[sliceAt] : null;
    openView("trace", slice !== null && slice !== undefined ? { slice: String(slice) } : { find: String(row[nameAt]) });
  };
  const nameAt = page ? Math.max(0, page.columns.findIndex((column) => ["Name", "name", "Operator", "operator"].includes(column.key) || column.name === "Name" || column.name === "Operator")) : 0;
  return (
    <Frame name="kernel" ready={(page !== null || failed) && !pies.busy} fill>
      <Toolbar>
        <TopChoice name="kernels" all={t("All kernels")} top={t("Top kernels to show")} value={top} onChange={(value) => setParams({ top: String(value) })} />
        <Select label="Group By" testid="select-group-by" value={group} options={groups} onChange={(value) => set({ group: value, t: null })} />
        <Search label={t("Search by Name")} testid="search-name" value={q} onChange={(value) => set({ q: value || null })} />
        <Search numeric label={t("Search by Step Id")} testid="search-step" value={step ?? ""} onChange={(value) => /^\d*$/.test(value) && set({ step: value || null })} />
        {npu && (
          <label class="check">
            <input type="checkbox" checked={comm === "1"} data-testid="include-communication" onChange={(event) => set({ comm: event.currentTarget.checked ? null : "0" })} />
            {t("Include communication")}
          </label>
        )}
        {(pies.data?.cores?.length ?? 0) > 1 && (
          <span class="chips" role="group" aria-label="Accelerator Core">
            {pies.data!.cores!.map((core) => (
              <button key={core} type="button" class={`chip toggle${cores.includes(core) ? " on" : ""}`} aria-pressed={cores.includes(core)} onClick={() => toggleCore(core)}>{core}</button>
            ))}
          </span>
        )}
      </Toolbar>
      <Await load={pies} remedy="kernel">
        {(data) => (
          <div class={`pies count-${data.pies.length}`}>
            {data.pies.map((pie) => (
              <Pie
                key={pie.key}
                pie={pie}
                onPick={(item) => {
                  if (pie.key !== "core") set({ q: q === item.name ? null : item.name });
                  else {
                    const core = data.cores?.find((one) => `Using ${one.replaceAll("_", " ")}` === item.name);
                    if (core) toggleCore(core);
                  }
                }}
              />
            ))}
          </div>
        )}
      </Await>
      {device !== "" && <Table
        id={`kernels-${npu ? "" : "gpu-"}${group}`}
        key={group}
        label={`${npu ? "NPU" : device === "cpu" ? "CPU" : "GPU"} Kernel`}
        source={remote(api, "kernels", query)}
        q={q}
        saved={{ value: param("t"), save: (value) => set({ t: value }) }}
        hidden={["slice"]}
        deciding={["Duration(us)", "Total Duration (us)"]}
        keysFirst={group === "all"}
        openRows={open}
        onPage={setPage}
        onProblem={() => setFailed(true)}
        remedy="kernel"
        {...(group === "type" ? {} : { onTrace: showInTrace })}
        onOpenRow={(index, row) => (group === "all" ? showInTrace(row) : group === "type" ? undefined : openRow(index))}
        cells={page ? { [page.columns[nameAt]!.key]: (value) => <LongName text={String(value ?? "")} /> } : {}}
        {...(group === "all" || group === "type" ? {} : { rowTools: (_row: Row, index: number) => (
          <button type="button" class="link" aria-expanded={open.has(index)} onClick={(event) => { event.stopPropagation(); openRow(index); }}>{t("All calls")}</button>
        ) })}
        detail={(row) => <CallList api={api} name={String(row[nameAt])} />}
      />}
    </Frame>
  );
}

const CALL_COLUMNS: readonly Column[] = [
  { key: "start", name: "Start Time (ms)", unit: "ms", type: "float", tooltip: "Since the first event of the capture." },
  { key: "duration", name: "Duration (us)", unit: "us", type: "float" },
  { key: "wait", name: "Wait Time (us)", unit: "us", type: "float" },
  { key: "step", name: "Step Id", type: "text" },
  { key: "op", name: "Launched by", type: "text" },
  { key: "slice", name: "slice", type: "text" },
];

function CallList({ api, name }: { api: Api; name: string }): JSX.Element {
  const calls = useLoad(JSON.stringify([api.capture, name]), (options) => api.get<Calls>("kernels/calls", { name }, options));
  return (
    <Await load={calls}>
      {(data) => {
        const most = Math.max(1, ...data.histogram.counts);
        const edges = data.histogram.edges_us;
        const rows: Row[] = data.rows.map((row) => [row.start_ns / 1e6, row.duration_us, row.wait_us, row.step === null ? "" : String(row.step), row.op ?? "", row.slice]);
        return (
          <div class={data.calls > 1 ? "calls" : ""}>
            {data.calls > 1 && <figure>
              <figcaption>{t("Duration histogram")} · {whole(data.calls)} calls</figcaption>
              <div class="histogram" role="img" aria-label={t("Duration histogram")}>
                {data.histogram.counts.map((count, at) => (
                  <i key={at} style={{ height: `${(count / most) * 100}%` }} title={`${three(edges[at] ?? 0)} … ${three(edges[at + 1] ?? 0)} us: ${count}`} />
                ))}
              </div>
              <div class="histogram-axis"><span>{timeText(edges[0] ?? 0)}</span><span>{timeText(edges[edges.length - 1] ?? 0)}</span></div>
            </figure>}
            <Table
              id="kernel-calls"
              fit
              label={t("All calls")}
              hidden={["slice"]}
              source={local(JSON.stringify([api.capture, name]), CALL_COLUMNS, rows, ["duration", "wait"])}
              onOpenRow={(_, row) => row[5] !== null && openView("trace", { slice: String(row[5]) })}
              onTrace={(row) => row[5] !== null && openView("trace", { slice: String(row[5]) })}
            />
          </div>
        );
      }}
    </Await>
  );
}
