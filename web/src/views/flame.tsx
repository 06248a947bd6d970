// SPDX-License-Identifier: Apache-2.0
// Flame: call stacks or nested operators, by time or count.

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { whole } from "../format";
import { apiFor, type Name, param, runs, setParams } from "../state";
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
  const others = (runs.value?.runs ?? []).flatMap((run) => run.workers.flatMap((worker) => worker.spans.map((span): Name => [run.name, worker.name, span.name])));
  const own = JSON.stringify([api.capture.run, api.capture.worker, api.capture.span]);
  const against = others.find((one) => JSON.stringify(one) === param("against"));
  const { step: _step, from: _from, to: _to, ...common } = query;
  const before = useLoad(against ? JSON.stringify([against, common]) : null, (options) => apiFor(against!).get<Flame>("flame", common, options));
  return (
    <Frame name="flame" ready={!load.busy && (!against || !before.busy)}>
      <Toolbar>
        <Select label={t("Source")} testid="select-source" value={query.source ?? ""} options={SOURCES} onChange={(value) => setParams({ source: value || null })} />
        <Select label={t("Weight")} testid="select-weight" value={query.weight} options={WEIGHTS} onChange={(value) => setParams({ weight: value })} />
        <StepSelect steps={load.data?.steps ?? []} step={step} />
        {others.length > 1 && (
          <Select
            label={t("Compare with")} testid="select-against" value={against ? JSON.stringify(against) : ""}
            options={[{ value: "", label: "–" }, ...others.map((one) => ({ value: JSON.stringify(one), label: `${one[0]} / ${one[1]}` })).filter((one) => one.value !== own)]}
            onChange={(value) => setParams({ against: value || null })}
          />
        )}
        <span class="spring" />
        {["collapsed", "speedscope"].map((format) => (
          <a key={format} class="button" href={api.url("flame", { ...query, format })} download={format === "speedscope" ? "stacks.speedscope.json" : "stacks.txt"}><Icon name="download" />{format}</a>
        ))}
      </Toolbar>
      <Await load={load} remedy="flame" tall>{(data) => <Chart data={data} before={against ? before.data : null} />}</Await>
    </Frame>
  );
}

/** Where shares changed most, at the deepest node that holds most of the change. */
function largest(tree: Tree): readonly { readonly name: string; readonly change: number }[] {
  const own = [...tree.change ?? []];
  tree.parent.forEach((parent, node) => { if (parent >= 0) own[parent]! -= tree.change![node]!; });
  const by = new Map<string, number>();
  own.forEach((change, node) => { if (node) by.set(tree.names[tree.name[node]!]!, (by.get(tree.names[tree.name[node]!]!) ?? 0) + change); });
  return [...by].map(([name, change]) => ({ name, change })).sort((a, b) => Math.abs(b.change) - Math.abs(a.change)).slice(0, 3).filter((one) => Math.abs(one.change) >= 0.001);
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

const treeOf = (data: Flame): Tree => ({ names: data.names, name: data.nodes.name, parent: data.nodes.parent, weight: data.nodes.weight });

/** Numbers in names (of steps, ranks, instances) differ between recordings. */
const plainName = (name: string): string => name.replace(/\d+(?=\D*$)/, "#");

/** Share of each way from the root in the whole; equal ways count together. */
function shares(tree: Tree): { readonly ways: readonly string[]; readonly share: ReadonlyMap<string, number> } {
  const ways: string[] = [];
  const share = new Map<string, number>();
  tree.name.forEach((name, node) => {
    const parent = tree.parent[node]!;
    const way = parent < 0 ? "" : `${ways[parent]}\n${plainName(tree.names[name]!)}`;
    ways.push(way);
    share.set(way, (share.get(way) ?? 0) + tree.weight[node]! / (tree.weight[0] || 1));
  });
  return { ways, share };
}

/** The tree with how much of the whole each of its ways gained or lost since `before`. */
function compared(tree: Tree, before: Tree): Tree {
  const [now, then] = [shares(tree), shares(before)];
  return { ...tree, change: now.ways.map((way) => (now.share.get(way) ?? 0) - (then.share.get(way) ?? 0)) };
}

function Chart({ data, before }: { data: Flame; before: Flame | null }): JSX.Element {
  const tree = useMemo<Tree>(() => (before ? compared(treeOf(data), treeOf(before)) : treeOf(data)), [data, before]);
  const find = param("find");
  const hits = useMemo(() => (find ? foundShare(tree, find) : null), [tree, find]);
  const [picked, setPicked] = useState("");
  const middle = param("sandwich");
  const both = useMemo(() => (middle && tree.names.includes(middle) ? [sandwich(tree, middle, false), sandwich(tree, middle, true)] : null), [tree, middle]);
  return (
    <Card
      title="Flame"
      note={data.left_out ? `${whole(data.left_out)} ${t("small parts left out")}` : ""}
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
      {before && !both && (
        <ul class="families flame-legend" data-testid="flame-legend">
          <li><i class="part communication" aria-hidden="true" /> {t("larger share than in the other")}</li><li><i class="part computing" aria-hidden="true" /> {t("smaller share")}</li>
          <li>{t("largest changes")}{t(": ")}{largest(tree).map((one) => `${one.name} ${one.change > 0 ? "+" : "−"}${(100 * Math.abs(one.change)).toFixed(1)} %`).join(t(", "))}</li>
        </ul>
      )}
    </Card>
  );
}
