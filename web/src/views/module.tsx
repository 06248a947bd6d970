// SPDX-License-Identifier: Apache-2.0
// Module: time by nn.Module, as a tree table and as nested bars.

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { whole, three, auto } from "../format";
import { units } from "../settings";
import { param, setParams } from "../state";
import { Card, download, Search, Select } from "../ui/controls";
import { Icicle, type Tree } from "../ui/icicle";
import { Icon } from "../ui/icons";
import { useLoad } from "../ui/load";
import { Await } from "../ui/messages";
import { csvText } from "../ui/pages";
import { rowsText, t } from "../words";
import { Frame, StepSelect, Toolbar, type ViewProps } from "./view";

interface ModuleRow {
  readonly id: number;
  readonly parent: number | null;
  readonly depth: number;
  readonly cells: readonly [string, number, number, number, number, number, number];
}

interface Modules {
  readonly columns: readonly string[];
  readonly rows: readonly ModuleRow[];
  readonly steps: readonly number[];
}

export function View({ api }: ViewProps): JSX.Element {
  const step = param("step");
  const load = useLoad(JSON.stringify([api.capture, step]), (options) => api.get<Modules>("modules", { step: step || null }, options));
  return (
    <Frame name="module" ready={!load.busy}>
      <Await load={load} remedy="module" tall>
        {(data) => <ModuleTree data={data} step={step} />}
      </Await>
    </Frame>
  );
}

/** Order of display: each parent followed by its children. */
function outline(rows: readonly ModuleRow[], sort: number, desc: boolean): ModuleRow[] {
  const below = new Map<number | null, ModuleRow[]>();
  for (const row of rows) {
    const list = below.get(row.parent);
    if (list) list.push(row);
    else below.set(row.parent, [row]);
  }
  const found: ModuleRow[] = [];
  const visit = (parent: number | null): void => {
    const list = [...(below.get(parent) ?? [])];
    if (sort >= 0) {
      list.sort((a, b) => {
        const [x, y] = [a.cells[sort]!, b.cells[sort]!];
        const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
        return desc ? -order : order;
      });
    }
    for (const row of list) {
      found.push(row);
      visit(row.id);
    }
  };
  visit(null);
  return found;
}

function ModuleTree({ data, step }: { data: Modules; step: string }): JSX.Element {
  const [closed, setClosed] = useState<ReadonlySet<number>>(new Set());
  const [sort, setSort] = useState<[number, boolean]>([-1, false]);
  const q = param("q").toLowerCase();
  const device = data.rows.some((row) => row.cells[5] > 0);
  const weight = Number(param("weight", device ? "5" : "3"));
  const parents = useMemo(() => new Set(data.rows.map((row) => row.parent)), [data]);
  const byId = useMemo(() => new Map(data.rows.map((row) => [row.id, row])), [data]);
  const ordered = useMemo(() => outline(data.rows, sort[0], sort[1]), [data, sort]);
  const hiddenBelow = (row: ModuleRow): boolean => {
    for (let at = row.parent; at !== null; at = byId.get(at)?.parent ?? null) if (closed.has(at)) return true;
    return false;
  };
  const shown = q ? ordered.filter((row) => row.cells[0].toLowerCase().includes(q)) : ordered.filter((row) => !hiddenBelow(row));
  const tree = useMemo<Tree>(() => {
    const places = new Map(data.rows.map((row, at) => [row.id, at + 1]));
    const top = data.rows.filter((row) => row.parent === null).reduce((sum, row) => sum + (row.cells[weight as 3] ?? 0), 0);
    return {
      names: ["all", ...data.rows.map((row) => row.cells[0])],
      name: [0, ...data.rows.map((_, at) => at + 1)],
      parent: [-1, ...data.rows.map((row) => (row.parent === null ? 0 : (places.get(row.parent) ?? 0)))],
      weight: [top, ...data.rows.map((row) => row.cells[weight as 3] ?? 0)],
    };
  }, [data, weight]);
  const toggle = (id: number): void => {
    const next = new Set(closed);
    if (!next.delete(id)) next.add(id);
    setClosed(next);
  };
  return (
    <>
      <Toolbar>
        <StepSelect steps={data.steps} step={step} />
        <Search label={t("Search by Name")} testid="search-name" value={param("q")} onChange={(value) => setParams({ q: value || null })} />
        <Select label={t("Weight")} testid="select-weight" value={String(weight)} options={[3, 5].filter((at) => at === 3 || device).map((at) => ({ value: String(at), label: data.columns[at]! }))} onChange={(value) => setParams({ weight: value })} />
      </Toolbar>
      <div class="stack flush">
        <Card title={data.columns[weight] ?? ""}>
          <Icicle tree={tree} unit="us" label="Module" testid="chart-module" />
        </Card>
        <div class="table-box" data-testid="table-module" data-total={data.rows.length}>
          <div class="table-bar">
            <span class="table-count">{rowsText(shown.length)}</span>
            <span class="spring" />
            <button type="button" class="button quiet" data-testid="btn-export" onClick={() => download("modules.csv", csvText([...data.columns], data.rows.map((row) => row.cells)), "text/csv")}><Icon name="download" />{t("Export CSV")}</button>
          </div>
          <table class="plain tree" role="treegrid" aria-label="Module">
            <thead>
              <tr>
                {data.columns.map((name, at) => (
                  <th key={name} scope="col" class={at ? "number" : ""} aria-sort={sort[0] === at ? (sort[1] ? "descending" : "ascending") : "none"} data-testid={`col-${name}`}>
                    <button type="button" class="heading-sort" title={at > 2 ? `${name} (us)` : name} onClick={() => setSort([at, sort[0] === at ? !sort[1] : at > 0])}>
                      <span>{name}{at > 2 && units.value !== "auto" && <span class="heading-unit"> (us)</span>}</span>
                      {sort[0] === at && <Icon name={sort[1] ? "down" : "up"} />}
                    </button>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {shown.map((row) => (
                <tr key={row.id} aria-level={row.depth + 1} aria-expanded={parents.has(row.id) ? !closed.has(row.id) : undefined}>
                  <td>
                    <span class="tree-name" style={{ paddingLeft: `${q ? 0 : row.depth * 18}px` }}>
                      {parents.has(row.id) && !q ? (
                        <button type="button" class="icon-button small" aria-label={row.cells[0]} onClick={() => toggle(row.id)}><Icon name={closed.has(row.id) ? "right" : "down"} /></button>
                      ) : <i class="tree-leaf" />}
                      {row.cells[0]}
                    </span>
                  </td>
                  {row.cells.slice(1).map((value, at) => <td key={at} class="number">{at < 2 ? whole(Number(value)) : units.value === "auto" ? auto(Number(value), "us") : three(Number(value))}</td>)}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </div>
    </>
  );
}
