// SPDX-License-Identifier: Apache-2.0
// Operator: where the time of framework operators goes, on the host and on the device.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Api } from "../api";
import { cellText, headingText } from "../format";
import { editorLink } from "../settings";
import { openView, param, runs, setParams } from "../state";
import { copyText, IconButton, say, Search, Select, TopChoice } from "../ui/controls";
import { Icon } from "../ui/icons";
import { useLoad } from "../ui/load";
import { Await, Empty } from "../ui/messages";
import { type Column, type Page, remote, type Row } from "../ui/pages";
import { Pie, type PieData } from "../ui/pie";
import { Table } from "../ui/table";
import { t } from "../words";
import { Frame, Toolbar, type ViewProps } from "./view";

interface StackFrame {
  readonly text: string;
  readonly file: string | null;
  readonly line: number | null;
  readonly function: string | null;
}

interface Stacks {
  readonly columns: readonly Column[];
  readonly rows: readonly { readonly cells: Row; readonly frames: readonly StackFrame[] }[];
  readonly total: number;
}

export function View({ api }: ViewProps): JSX.Element {
  const group = param("group", "op") === "op_shape" ? "op_shape" : "op";
  const q = param("q");
  const step = param("step") || null;
  const top = Number(param("top", "10"));
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const [page, setPage] = useState<Page | null>(null);
  const [failed, setFailed] = useState(false);
  const query = { group, step };
  const pies = useLoad(JSON.stringify([api.capture, query, q, top]), (options) => api.get<{ pies: PieData[] }>("operators/pies", { ...query, q: q || null, top }, options));
  const source = remote(api, "operators", query);
  const openRow = (index: number): void => {
    const next = new Set(open);
    if (!next.delete(index)) next.add(index);
    setOpen(next);
  };
  const reset = (changes: Record<string, string | null>): void => {
    setOpen(new Set()); // the rows below are other rows
    setParams(changes);
  };
  const stackAt = page?.columns.findIndex((column) => column.key === "call_stack") ?? -1;
  return (
    <Frame name="operator" ready={(page !== null || failed) && !pies.busy} fill>
      <Toolbar>
        <TopChoice name="operators" all={t("All operators")} top={t("Top operators to show")} value={top} onChange={(value) => setParams({ top: String(value) })} />
        <Select label="Group By" testid="select-group-by" value={group} options={[{ value: "op", label: "Operator" }, { value: "op_shape", label: "Operator + Input Shape" }]} onChange={(value) => reset({ group: value, t: null })} />
        <Search label={t("Search by Name")} testid="search-name" value={q} onChange={(value) => reset({ q: value || null })} />
      </Toolbar>
      <Await load={pies} remedy="operator">
        {({ pies: all }) => (
          <div class={`pies count-${all.length}`}>
            {all.map((pie) => (
              <Pie key={pie.key} pie={pie} onPick={(item) => reset({ q: q === item.name ? null : item.name })} />
            ))}
          </div>
        )}
      </Await>
      <Table
        id="operators"
        label="Operator"
        source={source}
        q={q}
        saved={{ value: param("t"), save: (value) => reset({ t: value }) }}
        openRows={open}
        onPage={setPage}
        onProblem={() => setFailed(true)}
        remedy="operator"
        onTrace={(row) => openView("trace", { find: String(row[0]) })}
        onOpenRow={(index, row) => (stackAt < 0 || row[stackAt] ? openRow(index) : undefined)}
        cells={{
          call_stack: (value, _row, index) =>
            value ? (
              <button type="button" class="link" aria-expanded={open.has(index)} onClick={(event) => { event.stopPropagation(); openRow(index); }}>
                View CallStack <Icon name={open.has(index) ? "up" : "down"} />
              </button>
            ) : (
              <span class="muted" title="with_stack=True">{t("no stack")}</span>
            ),
        }}
        detail={(row, columns) => <StackTable api={api} name={String(row[0])} shapes={group === "op_shape" ? cellAt(row, columns, "shapes") : null} step={step} />}
      />
    </Frame>
  );
}

function cellAt(row: Row, columns: readonly Column[], key: string): string | null {
  const value = row[columns.findIndex((column) => column.key === key)];
  return value === null || value === undefined ? null : String(value);
}

/** Table 2: one line per call stack of an operator. */
function StackTable(props: { api: Api; name: string; shapes: string | null; step: string | null }): JSX.Element {
  const [open, setOpen] = useState<number | null>(null);
  const query = { name: props.name, shapes: props.shapes, step: props.step };
  const stacks = useLoad(JSON.stringify([props.api.capture, query]), (options) => props.api.get<Stacks>("operators/stacks", query, options));
  return (
    <Await load={stacks} remedy="stack">
      {(data) =>
        data.rows.length === 0 ? (
          <Empty title={t("no stack")} remedy="stack" />
        ) : (
          <div class="stacks" data-testid="table-stacks">
            <table class="plain">
              <thead>
                <tr>
                  {data.columns.filter((column) => column.shown !== false).map((column) => <th key={column.key} scope="col" title={column.tooltip} class={column.type === "int" || column.type === "float" ? "number" : ""}>{headingText(column.name, column.unit)}</th>)}
                  <th scope="col">CallStack</th>
                </tr>
              </thead>
              <tbody>
                {data.rows.map((row, at) => (
                  <>
                    <tr key={at}>
                      {data.columns.map((column, place) => column.shown !== false && (
                        <td key={column.key} data-key={column.key} class={typeof row.cells[place] === "number" ? "number" : ""}>{cellText(row.cells[place], column)}</td>
                      ))}
                      <td>
                        <button type="button" class="link" aria-expanded={open === at} data-testid="btn-frames" onClick={() => setOpen(open === at ? null : at)}>
                          View call frames <Icon name={open === at ? "up" : "down"} />
                        </button>
                      </td>
                    </tr>
                    {open === at && (
                      <tr key={`${at}f`}>
                        <td colSpan={data.columns.length + 1}>
                          <Frames api={props.api} frames={row.frames} />
                        </td>
                      </tr>
                    )}
                  </>
                ))}
              </tbody>
            </table>
            {data.total > data.rows.length && <p class="hint">{data.rows.length} {t("of")} {data.total}</p>}
          </div>
        )
      }
    </Await>
  );
}

interface SourceLines {
  readonly file: string;
  readonly line: number;
  readonly first: number;
  readonly lines: readonly string[];
}

function SourcePreview({ api, file, line }: { api: Api; file: string; line: number }): JSX.Element {
  const load = useLoad(JSON.stringify([file, line]), (options) => api.get<SourceLines>("source", { file, line }, options));
  return (
    <Await load={load}>
      {(data) => (
        <pre class="preview" tabIndex={0}>
          {data.lines.map((text, at) => <span key={at} class={data.first + at === data.line ? "here" : ""}>{`${String(data.first + at).padStart(5)}  ${text}\n`}</span>)}
        </pre>
      )}
    </Await>
  );
}

function Frames({ api, frames }: { api: Api; frames: readonly StackFrame[] }): JSX.Element {
  const [shown, setShown] = useState<number | null>(null);
  return (
    <div class="frames" data-testid="frames">
      <div class="row">
        <span class="hint">{t("Innermost first")}</span>
        <IconButton small icon="copy" label={t("Copy")} onClick={() => void copyText(frames.map((frame) => frame.text).join("\n")).then(() => say(t("Copied")))} />
      </div>
      <ol>
        {frames.map((frame, at) => (
          <li key={at}>
            <code>{frame.text}</code>
            {frame.file && frame.line !== null && (
              <a class="link" href={editorLink.value.replace("{file}", encodeURI(frame.file)).replace("{line}", String(frame.line))} rel="noreferrer">
                {t("open in editor")}
              </a>
            )}
            {runs.value?.source_preview && frame.file && frame.line !== null && (
              <button type="button" class="link" aria-expanded={shown === at} onClick={() => setShown(shown === at ? null : at)}>{t("Preview")}</button>
            )}
            {shown === at && frame.file && frame.line !== null && <SourcePreview api={api} file={frame.file} line={frame.line} />}
          </li>
        ))}
      </ol>
    </div>
  );
}
