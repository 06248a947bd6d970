// SPDX-License-Identifier: Apache-2.0
// Files: what was read, what was lost, and questions in SQL.

import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { ApiError, type Api } from "../api";
import { auto, whole } from "../format";
import { runs, type Texts } from "../state";
import { Card, IconButton } from "../ui/controls";
import { useLoad } from "../ui/load";
import { Await, Problem } from "../ui/messages";
import { type Cell, local } from "../ui/pages";
import { Table } from "../ui/table";
import { inLanguage, rowsText, t } from "../words";
import { Frame, type ViewProps } from "./view";

interface Issue {
  readonly issue: string;
  readonly severity: "loss" | "warning" | "note";
  readonly unit: string;
  readonly count: number;
  readonly sentence: Texts;
  readonly advice: Texts;
  readonly places: readonly { source: string; count: number; detail: string }[];
}

interface Quality {
  readonly summary: Texts;
  readonly headline: Texts;
  readonly lost: Readonly<Record<string, number>>;
  readonly issues: readonly Issue[];
}

interface Files {
  readonly files: readonly { path: string; bytes: number; modified: number }[];
  readonly tables: readonly { name: string; rows: number; columns: readonly { name: string; type: string; unit: string | null; doc: string }[] }[];
  readonly facts: Readonly<Record<string, unknown>>;
  readonly profiler_info: Readonly<Record<string, unknown>> | null;
  readonly metadata: Readonly<Record<string, unknown>> | null;
  readonly quality: Quality;
  readonly load_s: number | null;
}

export function View({ api }: ViewProps): JSX.Element {
  const load = useLoad(JSON.stringify(api.capture), (options) => api.get<Files>("files", {}, options));
  return (
    <Frame name="files" ready={!load.busy}>
      <Await load={load} tall>
        {(data) => (
          <div class="stack">
            <FileList api={api} data={data} />
            <Card title={t("Quality")} testid="table-quality">
              <div class="card-body">{inLanguage(data.quality.summary)}</div>
              {data.quality.issues.length > 0 && (
                <table class="plain">
                  <thead><tr><th scope="col">Severity</th><th scope="col">Issue</th><th scope="col">Where</th><th scope="col">{t("What to do")}</th></tr></thead>
                  <tbody>{data.quality.issues.map((row) => (
                    <tr key={row.issue} data-severity={row.severity}>
                      <td>{t(row.severity)}</td>
                      <td title={row.issue}>{inLanguage(row.sentence)}</td>
                      <td>{row.places.map((place, at) => <div key={at}>{place.source}{place.detail && `: ${place.detail}`}{row.places.length > 1 && ` (${whole(place.count)})`}</div>)}</td>
                      <td>{inLanguage(row.advice)}</td>
                    </tr>
                  ))}</tbody>
                </table>
              )}
            </Card>
            {runs.value?.sql && <Sql api={api} tables={data.tables.map((table) => table.name)} />}
            <Card title={t("Tables")} testid="table-tables">
              <div class="card-body">
                {data.tables.map((table) => (
                  <details key={table.name} class="table-doc">
                    <summary><code>{table.name}</code> <span class="muted">{rowsText(table.rows)}</span></summary>
                    <table class="plain"><tbody>{table.columns.map((column) => <tr key={column.name}><td><code>{column.name}</code></td><td>{column.type}</td><td>{column.unit ?? ""}</td><td>{column.doc}</td></tr>)}</tbody></table>
                  </details>
                ))}
              </div>
            </Card>
            <div class="grid2">
              <Values title={t("Facts")} value={data.facts} />
              {data.profiler_info && Object.keys(data.profiler_info).length > 0 && <Values title="profiler_info" value={data.profiler_info} />}
              {data.metadata && Object.keys(data.metadata).length > 0 && <Values title="profiler_metadata" value={data.metadata} />}
            </div>
          </div>
        )}
      </Await>
    </Frame>
  );
}

/** The same in both languages, and as narrow as it can be: 2026-11-19 01:58:18. */
function moment(seconds: number): string {
  const at = new Date(seconds * 1000);
  const two = (value: number): string => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

function FileList({ api, data }: { api: Api; data: Files }): JSX.Element {
  const [open, setOpen] = useState<string | null>(null);
  const total = data.files.reduce((sum, file) => sum + file.bytes, 0);
  return (
    <Card title={t("Source files")} testid="table-files" note={`${data.files.length} · ${auto(total, "bytes")}${data.load_s === null ? "" : ` · ${data.load_s.toFixed(2)} s`}`}>
      <table class="plain">
        <thead><tr><th scope="col">Path</th><th scope="col" class="number">Size</th><th scope="col">Modified</th><th scope="col"><span class="unseen">{t("Preview")}</span></th></tr></thead>
        <tbody>
          {data.files.map((file) => (
            <tr key={file.path}>
              <td>{file.path}</td>
              <td class="number" title={`${whole(file.bytes)} bytes`}>{auto(file.bytes, "bytes")}</td>
              <td class="when">{moment(file.modified)}</td>
              <td><button type="button" class="link" onClick={() => setOpen(open === file.path ? null : file.path)}>{t("Preview")}</button></td>
            </tr>
          ))}
        </tbody>
      </table>
      {open !== null && <Preview api={api} path={open} onClose={() => setOpen(null)} />}
    </Card>
  );
}

function Preview({ api, path, onClose }: { api: Api; path: string; onClose: () => void }): JSX.Element {
  const load = useLoad(JSON.stringify([api.capture, path]), async ({ signal }) => {
    const response = await fetch(api.url("files/preview", { path, bytes: 65536 }), { signal: signal ?? null });
    if (!response.ok) throw new ApiError(response.status, ((await response.json()) as { error: object }).error);
    return response.text();
  });
  return (
    <div class="card-body">
      <div class="row"><strong>{path}</strong><span class="spring" /><IconButton small icon="close" label={t("Close")} onClick={onClose} /></div>
      <Await load={load}>{(text) => <pre class="preview" tabIndex={0}>{text}</pre>}</Await>
    </div>
  );
}

interface SqlAnswer {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly Cell[])[];
  readonly truncated: boolean;
  readonly seconds: number;
}

interface SqlSchema {
  readonly relations: readonly { name: string; kind: "table" | "view"; doc: string; columns: readonly string[] }[];
  readonly examples: readonly { name: string; query: string }[];
}

const MOST_OFFERED = 8;

// Names that begin as the word before the caret does: relations, and columns of the relations in the text.
function offered(schema: SqlSchema | null, text: string, caret: number): { from: number; words: readonly string[] } {
  const begun = /[A-Za-z_]\w*$/.exec(text.slice(0, caret))?.[0] ?? "";
  if (!schema || !begun) return { from: caret, words: [] };
  const named = new Set(text.match(/[A-Za-z_]\w*/g) ?? []);
  const columns = schema.relations.filter((one) => named.has(one.name)).flatMap((one) => one.columns);
  const known = [...new Set([...schema.relations.map((one) => one.name), ...columns])];
  const words = known.filter((word) => word !== begun && word.toLowerCase().startsWith(begun.toLowerCase())).slice(0, MOST_OFFERED);
  return { from: caret - begun.length, words };
}

function Sql({ api, tables }: { api: Api; tables: readonly string[] }): JSX.Element {
  const first = tables.includes("kernels") ? "kernels" : (tables[0] ?? "ops");
  const [text, setText] = useState(`select name, count(*) as calls, sum(end_ns - start_ns) / 1000.0 as total_us\nfrom ${first} group by name order by total_us desc limit 20`);
  const [answer, setAnswer] = useState<(SqlAnswer & { key: number }) | null>(null);
  const [problem, setProblem] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const [caret, setCaret] = useState(-1);
  const box = useRef<HTMLTextAreaElement>(null);
  const schema = useLoad<SqlSchema>(JSON.stringify([api.capture, "sql/schema"]), (options) => api.get<SqlSchema>("sql/schema", {}, options)).data;
  const offer = caret < 0 ? { from: 0, words: [] } : offered(schema, text, caret);
  const accept = (word: string): void => {
    const end = offer.from + word.length;
    setText(text.slice(0, offer.from) + word + text.slice(caret));
    setCaret(-1);
    requestAnimationFrame(() => { box.current?.focus(); box.current?.setSelectionRange(end, end); });
  };
  const typed = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void ask();
    else if (event.key === "Escape" && offer.words.length) { event.stopPropagation(); setCaret(-1); }
    else if (event.key === "Tab" && !event.shiftKey && offer.words[0] !== undefined) { event.preventDefault(); accept(offer.words[0]); }
  };
  const ask = async (): Promise<void> => {
    setBusy(true);
    setProblem(null);
    try {
      setAnswer({ ...(await api.post<SqlAnswer>("sql", { query: text, limit: 10_000 })), key: Date.now() });
    } catch (reason) {
      setAnswer(null);
      setProblem(reason instanceof ApiError ? reason : new ApiError(0, { title: String(reason) }));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Card title="SQL" testid="sql" {...(answer ? { note: `${rowsText(answer.rows.length)}${answer.truncated ? "+" : ""} · ${answer.seconds.toFixed(3)} s` } : {})}>
      <form class="card-body sql" onSubmit={(event) => { event.preventDefault(); void ask(); }}>
        <textarea ref={box} rows={3} aria-label={t("Query")} aria-describedby="sql-help" value={text} spellcheck={false} onInput={(event) => { setText(event.currentTarget.value); setCaret(event.currentTarget.selectionStart); }} onKeyDown={typed} />
        <div class="row sql-names" role="group" aria-label={t("Names")}>
          {offer.words.map((word) => <button key={word} type="button" class="button small" onClick={() => accept(word)}>{word}</button>)}
          {!offer.words.length && <span class="muted" id="sql-help">{t("Tab completes names of tables and columns; SHOW TABLES lists them.")}</span>}
        </div>
        {schema && <label class="row">{t("Examples")} <select aria-label={t("Examples")} value="" onChange={(event) => { const one = schema.examples.find((example) => example.name === event.currentTarget.value); if (one) setText(one.query); setCaret(-1); }}>
          <option value="">…</option>
          {schema.examples.map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}
        </select></label>}
        <button type="submit" class="button primary" disabled={busy}>{t("Run query")}</button>
      </form>
      {problem && <div class="card-body"><Problem problem={problem} /></div>}
      {answer && <Table id="sql" fit label="SQL" source={local(String(answer.key), answer.columns.map((name, at) => ({ key: name, name, type: typeof answer.rows.find((row) => row[at] !== null)?.[at] === "number" ? (answer.rows.every((row) => row[at] === null || Number.isInteger(row[at])) ? "int" : "float") : "text" })), answer.rows)} />}
    </Card>
  );
}

function Values({ title, value }: { title: string; value: Readonly<Record<string, unknown>> }): JSX.Element {
  return (
    <Card title={title}>
      <table class="plain"><tbody>{Object.entries(value).map(([key, one]) => <tr key={key}><td class="nowrap">{key}</td><td>{typeof one === "object" ? JSON.stringify(one) : String(one)}</td></tr>)}</tbody></table>
    </Card>
  );
}
