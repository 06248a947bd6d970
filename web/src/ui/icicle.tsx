// SPDX-License-Identifier: Apache-2.0
// A tree as nested bars: width is weight, depth goes down. Click opens a part, double click or Up goes back.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { colourOf } from "../colour";
import { fitted } from "../fitted";
import { auto, percent } from "../format";
import { dark } from "../settings";
import { t } from "../words";
import { useWidth } from "./bars";
import { themeColour } from "./picture";

export interface Tree {
  readonly names: readonly string[];
  /** Per node: name of the node, parent (-1 at the root), weight. Parents stand before children; node 0 is the root. */
  readonly name: readonly number[];
  readonly parent: readonly number[];
  readonly weight: readonly number[];
  /** Where two are compared: how much the share of each node in the whole grew, −1 to 1. */
  readonly change?: readonly number[];
}

/** More and less as in Diff: orange and blue, stronger the more of the whole it is. */
const MORE = "#bf5410";
const LESS = "#2a5fc0";
const FULL_CHANGE = 0.1;

const ROW = 22;

interface Box {
  readonly node: number;
  readonly depth: number;
  readonly x: number;
  readonly width: number;
}

function place(tree: Tree, root: number): Box[] {
  const children = new Map<number, number[]>();
  tree.parent.forEach((parent, node) => {
    if (parent < 0) return;
    const list = children.get(parent);
    if (list) list.push(node);
    else children.set(parent, [node]);
  });
  const boxes: Box[] = [];
  const queue: Box[] = [{ node: root, depth: 0, x: 0, width: 1 }];
  while (queue.length) {
    const box = queue.pop()!;
    boxes.push(box);
    const whole = tree.weight[box.node]! || 1;
    let x = box.x;
    const below = [...(children.get(box.node) ?? [])].sort((a, b) => tree.weight[b]! - tree.weight[a]!);
    for (const child of below) {
      const width = box.width * Math.min(1, tree.weight[child]! / whole);
      if (width > 0.0003) queue.push({ node: child, depth: box.depth + 1, x, width });
      x += width;
    }
  }
  return boxes;
}

/** `file(line): function` in a narrow bar: the function and the file's last part say most. */
function shortName(name: string): string {
  const match = /([^/]+\(\d+\)): (.+)$/.exec(name);
  return match ? `${match[2]} · ${match[1]}` : name;
}

export function Icicle(props: { tree: Tree; unit: string; label: string; root?: number; onRoot?: (node: number) => void; testid: string; find?: string; plain?: ReadonlySet<string>; dotted?: string; onPick?: (name: string) => void }): JSX.Element {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [ownRoot, setOwnRoot] = useState(0);
  const root = props.root ?? ownRoot;
  const setRoot = props.onRoot ?? setOwnRoot;
  const [over, setOver] = useState<Box | null>(null);
  const boxes = useMemo(() => place(props.tree, root), [props.tree, root]);
  const depth = boxes.reduce((most, one) => Math.max(most, one.depth), 0) + 1;
  const isDark = dark.value;
  const ancestors = useMemo(() => {
    const list: number[] = [];
    for (let node = root; node >= 0; node = props.tree.parent[node]!) list.unshift(node);
    return list;
  }, [props.tree, root]);

  const total = props.tree.weight[0] || 1;
  const weightText = (node: number): string => (props.unit === "us" ? auto(props.tree.weight[node]!, "us") : `${props.tree.weight[node]!.toLocaleString("en-US", props.unit === "MiB" ? { maximumFractionDigits: 1 } : {})} ${props.unit}`);
  const wanted = (props.find ?? "").trim().toLowerCase();
  useEffect(() => {
    const element = canvas.current;
    if (!element || !width) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = width * ratio;
    element.height = depth * ROW * ratio;
    element.style.width = `${width}px`;
    element.style.height = `${depth * ROW}px`;
    const pen = element.getContext("2d")!;
    pen.scale(ratio, ratio);
    pen.clearRect(0, 0, width, depth * ROW);
    pen.font = "11.5px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (const one of boxes) {
      const x = one.x * width;
      const w = one.width * width;
      const name = props.tree.names[props.tree.name[one.node]!] ?? "";
      const hit = !wanted || name.toLowerCase().includes(wanted);
      pen.globalAlpha = over && over.node === one.node ? 1 : !hit ? 0.12 : wanted ? 0.9 : isDark ? 0.62 : 0.5;
      const change = props.tree.change?.[one.node];
      if (change !== undefined) pen.globalAlpha *= Math.max(0.08, Math.min(1, Math.abs(change) / FULL_CHANGE)) * 1.6;
      pen.fillStyle = change !== undefined ? (Math.abs(change) < 1e-4 ? "#98a2b0" : change > 0 ? MORE : LESS) : one.node === 0 || props.plain?.has(name) ? "#98a2b0" : colourOf(name.replace(/_\d+$/, ""));
      pen.fillRect(x, one.depth * ROW, Math.max(0.6, w - 1), ROW - 1);
      pen.globalAlpha = 1;
      if (name === props.dotted) {
        // Not known: dots, as everywhere.
        pen.fillStyle = themeColour("unknown-dot");
        for (let dot = x + 3; dot < x + w - 2; dot += 5) for (let y = one.depth * ROW + 3; y < (one.depth + 1) * ROW - 2; y += 5) pen.fillRect(dot, y, 1.2, 1.2);
      }
      if (w > 34) {
        pen.fillStyle = isDark ? "#f2f5fa" : "#10161f";
        let text = name === props.dotted ? `${name} · ${weightText(one.node)} · ${percent(props.tree.weight[one.node]! / total)}` : shortName(name);
        text = fitted((one) => pen.measureText(one).width, text, w - 9, 1);
        if (name === props.dotted) {
          const wide = pen.measureText(text).width;
          pen.fillStyle = themeColour("surface");
          pen.fillRect(x + 3, one.depth * ROW + 3, wide + 6, ROW - 7);
          pen.fillStyle = isDark ? "#f2f5fa" : "#10161f";
        }
        pen.fillText(text, x + 5, one.depth * ROW + ROW / 2);
      }
    }
  }, [boxes, width, isDark, over, wanted]);

  const find = (event: MouseEvent): Box | null => {
    const x = event.offsetX / width;
    const row = Math.floor(event.offsetY / ROW);
    return boxes.find((one) => one.depth === row && x >= one.x && x < one.x + one.width) ?? null;
  };
  const changeText = (node: number): string => {
    const change = props.tree.change?.[node];
    return change === undefined ? "" : ` · ${change >= 0 ? "+" : "−"}${(100 * Math.abs(change)).toFixed(2)} % ${t("of the whole")}`;
  };
  return (
    <div class="icicle" data-testid={props.testid}>
      <nav class="icicle-path" aria-label={props.label}>
        {ancestors.map((node, at) => (
          <button key={node} type="button" class="link" disabled={at === ancestors.length - 1} onClick={() => setRoot(node)}>{shortName(props.tree.names[props.tree.name[node]!] ?? "")}</button>
        ))}
        <span class="spring" />
        <span class="hint" role="status">{over ? `${props.tree.names[props.tree.name[over.node]!]} · ${weightText(over.node)} · ${percent(props.tree.weight[over.node]! / total)}${changeText(over.node)}` : weightText(root)}</span>
      </nav>
      <div ref={box} class="icicle-box">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="img"
          aria-label={`${props.label}: ${boxes.length} ${t("rows")}`}
          onMouseMove={(event) => setOver(find(event))}
          onMouseLeave={() => setOver(null)}
          onClick={(event) => {
            const hit = find(event);
            if (hit) props.onPick?.(props.tree.names[props.tree.name[hit.node]!] ?? "");
            if (hit) setRoot(hit.node === root ? Math.max(0, props.tree.parent[root]!) : hit.node);
          }}
          onKeyDown={(event) => {
            if (event.key === "Backspace" || event.key === "Escape") setRoot(Math.max(0, props.tree.parent[root]!));
          }}
        />
      </div>
    </div>
  );
}
