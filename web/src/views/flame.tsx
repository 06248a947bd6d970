// SPDX-License-Identifier: Apache-2.0
// Flame: call stacks or nested operators, by time or count.

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { whole } from "../format";
import { param, setParams } from "../state";
import { Card, Search, Select } from "../ui/controls";
import { Icicle, type Tree } from "../ui/icicle";
import { Icon } from "../ui/icons";
import { useLoad } from "../ui/load";
import { Await } from "../ui/messages";
import { t } from "../words";
import { Frame, StepSelect, Toolbar, type ViewProps } from "./view";

interface Flame {
  readonly names: readonly string[];
  readonly nodes: { readonly parent: readonly number[]; readonly name: readonly number[]; readonly weight: readonly number[]; readonly self: readonly number[] };
  readonly total: number;
  readonly unit: string;
  readonly left_out: number;
  readonly steps: readonly number[];
  readonly source?: string;
  readonly sources?: readonly string[];
}

const SOURCES = [{ value: "", label: "auto" }, { value: "stack", label: "Call stacks" }, { value: "op", label: "Operators" }];
const WEIGHTS = [{ value: "host", label: "Host Self" }, { value: "device", label: "Device Self" }, { value: "count", label: "Count" }];

export function View({ api }: ViewProps): JSX.Element {
  const step = param("step");
  const query = { step: step || null, source: param("source") || null, weight: param("weight", "host"), from: param("from") || null, to: param("to") || null };
  const load = useLoad(JSON.stringify([api.capture, query]), (options) => api.get<Flame>("flame", query, options));
  return (
    <Frame name="flame" ready={!load.busy}>
      <Toolbar>
        <Select label={t("Source")} testid="select-source" value={query.source ?? ""} options={SOURCES} onChange={(value) => setParams({ source: value || null })} />
        <Select label={t("Weight")} testid="select-weight" value={query.weight} options={WEIGHTS} onChange={(value) => setParams({ weight: value })} />
        <StepSelect steps={load.data?.steps ?? []} step={step} />
        <span class="spring" />
        {["collapsed", "speedscope"].map((format) => (
          <a key={format} class="button" href={api.url("flame", { ...query, format })} download={format === "speedscope" ? "stacks.speedscope.json" : "stacks.txt"}><Icon name="download" />{format}</a>
        ))}
      </Toolbar>
      <Await load={load} remedy="flame" tall>{(data) => <Chart data={data} />}</Await>
    </Frame>
  );
}

/** Share of the whole below nodes whose name has the text; a hit below a hit counts once. */
function foundShare(tree: Tree, text: string): { readonly count: number; readonly share: number } {
  const wanted = text.trim().toLowerCase();
  const inside = new Uint8Array(tree.name.length);
  let [count, weight] = [0, 0];
  tree.name.forEach((name, node) => {
    const parent = tree.parent[node]!;
    const hit = tree.names[name]!.toLowerCase().includes(wanted);
    if (parent >= 0 && inside[parent]) inside[node] = 1;
    if (!hit) return;
    count++;
    if (!inside[node]) weight += tree.weight[node]!;
    inside[node] = 1;
  });
  return { count, share: weight / (tree.weight[0] || 1) };
}

/**
 * All calls of one name as one: below, what they called (`down`); above, who called them. Of calls inside a call of the same name only the outer one counts.
 */
function sandwich(tree: Tree, name: string, down: boolean): Tree {
  const children = new Map<number, number[]>();
  tree.parent.forEach((parent, node) => {
    const list = children.get(parent);
    if (list) list.push(node);
    else children.set(parent, [node]);
  });
  const own = new Set<number>();
  const outer = tree.name.map((one, node) => {
    if (tree.names[one] !== name) return false;
    own.add(node);
    for (let up = tree.parent[node]!; up >= 0; up = tree.parent[up]!) if (own.has(up)) return false;
    return true;
  });
  const found: { name: number[]; parent: number[]; weight: number[] } = { name: [tree.names.indexOf(name)], parent: [-1], weight: [0] };
  const places = new Map<string, number>();
  const add = (parent: number, of: number, weight: number): number => {
    const key = `${parent} ${of}`;
    let at = places.get(key);
    if (at === undefined) {
      places.set(key, (at = found.name.length));
      found.name.push(of);
      found.parent.push(parent);
      found.weight.push(0);
    }
    found.weight[at]! += weight;
    return at;
  };
  outer.forEach((is, node) => {
    if (!is) return;
    const weight = tree.weight[node]!;
    found.weight[0]! += weight;
    if (down) {
      const rest: [number, number][] = (children.get(node) ?? []).map((child) => [child, 0]);
      while (rest.length) {
        const [child, parent] = rest.pop()!;
        const at = add(parent, tree.name[child]!, tree.weight[child]!);
        for (const next of children.get(child) ?? []) rest.push([next, at]);
      }
    } else {
      let at = 0;
      for (let up = tree.parent[node]!; up > 0; up = tree.parent[up]!) at = add(at, tree.name[up]!, weight);
    }
  });
  return { names: tree.names, ...found };
}

function Chart({ data }: { data: Flame }): JSX.Element {
  const tree = useMemo<Tree>(() => ({ names: data.names, name: data.nodes.name, parent: data.nodes.parent, weight: data.nodes.weight }), [data]);
  const find = param("find");
  const hits = useMemo(() => (find ? foundShare(tree, find) : null), [tree, find]);
  const [picked, setPicked] = useState("");
  const middle = param("sandwich");
  const both = useMemo(() => (middle && tree.names.includes(middle) ? [sandwich(tree, middle, false), sandwich(tree, middle, true)] : null), [tree, middle]);
  return (
    <Card
      title="Flame"
      note={data.left_out ? `${whole(data.left_out)} small parts left out` : ""}
      tools={
        <>
          {hits && <span class="hint" role="status" data-testid="flame-hits">{whole(hits.count)} {t("found")} · {(hits.share * 100).toFixed(1)} %</span>}
          <Search label={t("Find in the graph")} testid="flame-find" value={find} onChange={(value) => setParams({ find: value || null })} />
          <button type="button" class="button" disabled={!picked && !middle} aria-pressed={middle !== ""} data-testid="flame-sandwich" onClick={() => setParams({ sandwich: middle ? null : picked })}>{t("Sandwich")}</button>
        </>
      }
    >
      {both ? (
        <>
          <Icicle tree={both[0]!} unit={data.unit} label={`${middle}: ${t("callers")}`} testid="chart-callers" find={find} />
          <Icicle tree={both[1]!} unit={data.unit} label={`${middle}: ${t("callees")}`} testid="chart-callees" find={find} />
        </>
      ) : (
        <Icicle tree={tree} unit={data.unit} label="Flame" testid="chart-flame" find={find} onPick={setPicked} />
      )}
    </Card>
  );
}
