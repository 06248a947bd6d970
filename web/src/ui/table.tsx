// SPDX-License-Identifier: Apache-2.0
// The table of all views: only the rows in view exist, sorting and filtering are the source's.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError } from "../api";
import { cellText, whole } from "../format";
import { keep, language, readSetting, units } from "../settings";
import { rowsText, t } from "../words";
import { ColumnChooser } from "./column_menu";
import { copyText, download, say } from "./controls";
import { Icon } from "./icons";
import { Problem, Skeleton } from "./messages";
import { type Column, csvText, type Page, type PageQuestion, type Row, type Source } from "./pages";
import { type Acts, type Cells, Heads, type Layout, pinnedClass, type Shown, TableRow, type Wish } from "./table_parts";
import { frontColumns, naturalWidth, numeric } from "./table_widths";
import { contentHeight, ROW, rowAt, TALLEST, topOf } from "./scrolling";

export interface TableProps {
  /** Names the table: test hook, remembered columns. */
  readonly id: string;
  readonly label: string;
  readonly source: Source;
  readonly q?: string;
  /** Drawn instead of the plain text. */
  readonly cells?: Cells;
  /** The part below a row that is open. */
  readonly detail?: (row: Row, columns: readonly Column[]) => ComponentChildren;
  readonly openRows?: ReadonlySet<number>;
  readonly onOpenRow?: (index: number, row: Row) => void;
  readonly onTrace?: (row: Row, columns: readonly Column[]) => void;
  /** Buttons of a row, shown while the pointer or the cursor is on it. */
  readonly rowTools?: (row: Row, index: number) => ComponentChildren;
  readonly onHover?: (row: Row | null, columns: readonly Column[]) => void;
  /** Sort and filters live in the address when given. */
  readonly saved?: { readonly value: string; readonly save: (value: string | null) => void };
  readonly hidden?: readonly string[];
  /** Headings of figures that stay in view where the table is wider than its place. */
  readonly deciding?: readonly string[];
  /** Whether the name and these figures stand before the other columns, until a reader orders them. */
  readonly keysFirst?: boolean;
  readonly onPage?: (page: Page) => void;
  readonly onProblem?: () => void;
  /** The empty state that fits when the capture has no such data. */
  readonly remedy?: string;
  readonly fit?: boolean;
}

const BLOCK = 200;
const NO_WISH: Wish = { sort: [], filters: {} };

function readWish(text: string): Wish {
  if (!text) return NO_WISH;
  try {
    const value = JSON.parse(text) as Partial<Wish>;
    return { sort: value.sort ?? [], filters: value.filters ?? {} };
  } catch {
    return NO_WISH;
  }
}

const NARROWEST_NAME = 190; // px

function writeWish(wish: Wish): string | null {
  return wish.sort.length || Object.keys(wish.filters).length ? JSON.stringify(wish) : null;
}

export function Table(props: TableProps): JSX.Element {
  const { source } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [own, setOwn] = useState<Wish>(NO_WISH);
  const wish = props.saved ? readWish(props.saved.value) : own;
  const setWish = (next: Wish): void => {
    if (props.saved) props.saved.save(writeWish(next));
    else setOwn(next);
  };
  const [layout, setLayout] = useState<Layout>(() => readSetting(`table.${props.id}`, { order: [], widths: {}, hidden: {}, pinned: [] }));
  const changeLayout = (next: Layout): void => {
    setLayout(next);
    keep(`table.${props.id}`, next);
  };

  const question = { q: props.q ?? "", sort: wish.sort, filters: wish.filters };
  const key = JSON.stringify([source.key, question]);
  const blocks = useRef(new Map<number, readonly Row[]>());
  const requests = useRef(new Map<number, AbortController>());
  const current = useRef(key);
  const [first, setFirst] = useState<Page | null>(null);
  const [shownKey, setShownKey] = useState("");
  const [problem, setProblem] = useState<ApiError | null>(null);
  const [progress, setProgress] = useState<{ progress: number; stage: string } | null>(null);
  const [, redraw] = useState(0);
  const [view, setView] = useState({ top: 0, height: 400, width: 800 });
  const [active, setActive] = useState<{ row: number; column: number }>({ row: 0, column: 0 });
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set());
  const [heights, setHeights] = useState<Readonly<Record<number, number>>>({});
  const anchor = useRef(0);
  const acts = useRef<Acts>(null as unknown as Acts); // filled before the first row is drawn

  const fetchBlock = (block: number): void => {
    if (blocks.current.has(block) || requests.current.has(block)) return;
    const stop = new AbortController();
    requests.current.set(block, stop);
    const mine = current.current;
    const full: PageQuestion = { ...question, offset: block * BLOCK, limit: BLOCK };
    source.page(full, { signal: stop.signal, onProgress: setProgress }).then(
      (page) => {
        requests.current.delete(block);
        if (current.current !== mine) return;
        blocks.current.set(block, page.rows);
        if (block === 0) {
          setFirst(page);
          setShownKey(mine);
          setProblem(null);
          setProgress(null);
          props.onPage?.(page);
        }
        redraw((n) => n + 1);
      },
      (reason: unknown) => {
        requests.current.delete(block);
        if (stop.signal.aborted || current.current !== mine) return;
        props.onProblem?.();
        setProblem(reason instanceof ApiError ? reason : new ApiError(0, { title: String(reason) }));
      },
    );
  };

  useEffect(() => {
    current.current = key;
    for (const stop of requests.current.values()) stop.abort();
    requests.current.clear();
    blocks.current = new Map();
    setChosen(new Set());
    setHeights({});
    setActive({ row: 0, column: 0 });
    scroller.current?.scrollTo({ top: 0 });
    setView((before) => ({ ...before, top: 0 }));
    fetchBlock(0);
    return () => {
      for (const stop of requests.current.values()) stop.abort();
    };
  }, [key]);

  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) return undefined;
    const observer = new ResizeObserver(() => setView((before) => ({ ...before, height: box.clientHeight, width: box.clientWidth })));
    observer.observe(box);
    return () => observer.disconnect();
  }, [first === null]);

  const columns = useMemo(() => {
    if (!first) return [];
    const all = first.columns.map((column, at) => ({ column, at }));
    const visible = all.filter(({ column }) => !props.hidden?.includes(column.key) && !(layout.hidden[column.key] ?? column.shown === false));
    const front = frontColumns(first.columns, props.keysFirst ? props.deciding : undefined);
    const rank = (name: string): number => {
      const at = (layout.order.length ? layout.order : front).indexOf(name);
      return at < 0 ? first.columns.findIndex((column) => column.key === name) + (layout.order.length ? 0 : front.length) : at;
    };
    visible.sort((a, b) => {
      const pinned = Number(layout.pinned.includes(b.column.key)) - Number(layout.pinned.includes(a.column.key));
      return pinned || rank(a.column.key) - rank(b.column.key);
    });
    const natural = visible.map(({ column, at }) => layout.widths[column.key] ?? naturalWidth(column, at, first.rows, first.totals?.[column.key]));
    const spare = view.width - natural.reduce((sum, one) => sum + one, 0) - 6; // the last handle stands out a little
    if (spare > 0 && natural.length) {
      // The names take most of what is left, the rest is shared.
      const text = visible.findIndex(({ column }) => !numeric(column) && column.type !== "bool");
      const share = Math.floor(spare / (natural.length + (text >= 0 ? 4 : 0)));
      natural.forEach((_, at) => (natural[at]! += share * (at === text ? 5 : 1)));
    }
    const name = visible.findIndex(({ column }) => !numeric(column) && column.type !== "bool" && layout.widths[column.key] === undefined);
    let over = -spare;
    if (over > 0 && name >= 0) {
      // Too narrow for all: names are cut in the middle before figures leave the view.
      const given = Math.min(over, Math.max(0, natural[name]! - NARROWEST_NAME));
      natural[name]! -= given;
      over -= given;
    }
    // What a row is about, and the figures that decide, stay in view while the others are scrolled; a reader who pins chooses.
    const kept = over > 0 && !layout.pinned.length;
    const decides = ({ column }: { column: Column }): boolean => kept && (props.deciding?.includes(column.name) ?? false);
    let [left, beside] = [0, kept && name >= 0 ? natural[name]! : 0];
    let right = natural.reduce((sum, width, at) => sum + (decides(visible[at]!) ? width : 0), 0);
    return visible.map((one, index) => {
      const { column, at } = one;
      const width = natural[index]!;
      let stays: Shown["stays"] = layout.pinned.includes(column.key) || (kept && index === name) ? { left: `${kept ? 0 : left}px` } : null;
      left += width;
      if (decides(one)) {
        right -= width;
        stays = { left: `${beside}px`, right: `${right}px` };
        beside += width;
      }
      return { column, at, width, stays };
    });
  }, [first, layout, view.width, props.hidden?.join(), props.deciding?.join(), props.keysFirst, units.value]);

  const openList = [...(props.openRows ?? [])].sort((a, b) => a - b).map((row) => [row, heights[row] ?? 160] as const);
  const count = first?.filtered ?? 0;
  const content = contentHeight(count, openList);
  const spacer = Math.min(content, TALLEST);
  const head = 46;
  const visibleHeight = Math.max(60, view.height - head - 30);
  const ratio = content > TALLEST ? (content - visibleHeight) / (spacer - visibleHeight) : 1;
  const top = view.top * ratio;
  const from = Math.max(0, rowAt(top, openList) - 4);
  const to = Math.min(count, rowAt(top + view.height, openList) + 5);

  useEffect(() => {
    if (shownKey !== key) return;
    for (let block = Math.floor(from / BLOCK); block * BLOCK < to; block++) fetchBlock(block);
  });

  const rowOf = (index: number): Row | undefined => blocks.current.get(Math.floor(index / BLOCK))?.[index % BLOCK];

  const reveal = (row: number): void => {
    const box = scroller.current;
    if (!box) return;
    const y = topOf(row, openList);
    if (y < top) box.scrollTop = y / ratio;
    else if (y + ROW > top + visibleHeight) box.scrollTop = (y + ROW - visibleHeight) / ratio;
  };

  const sortBy = (name: string, more: boolean, column: Column): void => {
    const now = effectiveSort.find(([one]) => one === name);
    const desc = now ? !now[1] : numeric(column); // numbers: the largest first
    const others = more ? effectiveSort.filter(([one]) => one !== name) : [];
    setWish({ ...wish, sort: [...others, [name, desc] as const] });
  };
  const effectiveSort = wish.sort.length ? wish.sort : (first?.sort ?? []);

  const gather = async (indices: readonly number[]): Promise<Row[]> => {
    if (indices.length && indices.some((index) => !rowOf(index))) {
      const low = Math.min(...indices);
      const page = await source.page({ ...question, offset: low, limit: Math.min(20_000, Math.max(...indices) - low + 1) }, {});
      return indices.map((index) => page.rows[index - low]).filter((row) => row !== undefined);
    }
    return indices.map((index) => rowOf(index)!);
  };

  const copyRows = async (markdown: boolean): Promise<void> => {
    const picked = chosen.size ? [...chosen].sort((a, b) => a - b) : Array.from({ length: Math.min(count, 20_000) }, (_, i) => i);
    const rows = await gather(picked);
    const lines = [columns.map(({ column }) => column.name), ...rows.map((row) => columns.map(({ at }) => (row[at] === null ? "" : String(row[at]))))];
    const plain = lines.map((line) => line.map((one) => one.replace(/[\t\n\r]+/g, " ")));
    const rule = columns.map(({ column }) => (numeric(column) ? "---:" : "---"));
    const asMarkdown = (line: readonly string[]): string => `| ${line.map((one) => one.replace(/([\\|])/g, "\\$1")).join(" | ")} |`;
    await copyText(markdown ? [plain[0]!, rule, ...plain.slice(1)].map(asMarkdown).join("\n") : plain.map((line) => line.join("\t")).join("\n"));
    say(`${t("Copied")}: ${rowsText(rows.length)}`);
  };

  const exportCsv = async (): Promise<void> => {
    if (source.csv) {
      const link = document.createElement("a");
      link.href = source.csv({ ...question, offset: 0, limit: 0 });
      link.download = `${props.id}.csv`;
      link.click();
      return;
    }
    const page = await source.page({ ...question, offset: 0, limit: 20_000 }, {});
    const shown = columns.map(({ at }) => at);
    download(`${props.id}.csv`, csvText(columns.map(({ column }) => column.name), page.rows.map((row) => shown.map((at) => row[at] ?? null))), "text/csv");
  };

  const pick = (index: number, event: { shiftKey: boolean; ctrlKey: boolean; metaKey: boolean }): void => {
    setActive((before) => ({ ...before, row: index }));
    if (event.shiftKey) {
      const [low, high] = [Math.min(anchor.current, index), Math.max(anchor.current, index)];
      setChosen(new Set(Array.from({ length: Math.min(high - low + 1, 20_000) }, (_, i) => low + i)));
      return;
    }
    anchor.current = index;
    if (event.ctrlKey || event.metaKey) {
      const next = new Set(chosen);
      if (!next.delete(index)) next.add(index);
      setChosen(next);
    } else setChosen(chosen.size === 1 && chosen.has(index) ? new Set() : new Set([index]));
  };

  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.target !== scroller.current) return;
    const page = Math.max(1, Math.floor(visibleHeight / ROW) - 1);
    const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -count, End: count };
    const move = moves[event.key];
    if (move !== undefined && !event.altKey) {
      const row = Math.max(0, Math.min(count - 1, active.row + move));
      setActive({ ...active, row });
      if (event.shiftKey) pick(row, event);
      reveal(row);
    } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const column = Math.max(0, Math.min(columns.length - 1, active.column + (event.key === "ArrowRight" ? 1 : -1)));
      setActive({ ...active, column });
      document.getElementById(`${props.id}-${active.row}-${column}`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else if (event.key === " ") pick(active.row, { shiftKey: event.shiftKey, ctrlKey: true, metaKey: false });
    else if (event.key === "Enter") {
      const row = rowOf(active.row);
      if (row && props.onOpenRow) props.onOpenRow(active.row, row);
    } else if (event.key === "t" && props.onTrace && !event.ctrlKey && !event.metaKey) {
      const row = rowOf(active.row);
      if (row && first) props.onTrace(row, first.columns);
    } else if (event.key === "c" && (event.ctrlKey || event.metaKey)) void copyRows(false);
    else if (event.key === "Escape") setChosen(new Set());
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  if (problem && !first) {
    return (
      <div class="table-box">
        <Problem problem={problem} {...(props.remedy ? { remedy: props.remedy } : {})} again={() => { setProblem(null); fetchBlock(0); }} />
      </div>
    );
  }
  if (!first) {
    return (
      <div class="table-box" aria-busy="true">
        <Skeleton progress={progress} />
      </div>
    );
  }

  acts.current = {
    pick,
    cells: props.cells ?? {},
    hover: props.onHover ? (row) => props.onHover!(row, first.columns) : null,
    trace: props.onTrace ? (row) => props.onTrace!(row, first.columns) : null,
    tools: props.rowTools ?? null,
    sort: sortBy,
    wish: (change) => setWish(change(wish)),
    layout: (change) => changeLayout(change(layout)),
    values: (at) => distinct(blocks.current, at),
    keys: columns.map(({ column }) => column.key),
  };
  const template = columns.map(({ width }) => `${width}px`).join(" ");
  const tableWidth = columns.reduce((sum, { width }) => sum + width, 0);
  const sums = chosen.size ? selectionSums(columns, [...chosen].map(rowOf)) : null;
  const totals = first.totals ?? {};
  const hasTotals = columns.some(({ column }) => totals[column.key] !== undefined && totals[column.key] !== null);
  const filterCount = Object.keys(wish.filters).length;
  // Rows stand in a layer that moves as a whole, so that scrolling draws only the rows that come into view.
  const base = Math.floor(from / BLOCK) * BLOCK;
  const layerTop = topOf(base, openList);
  const rows: JSX.Element[] = [];
  for (let index = from; index < to; index++) {
    const row = rowOf(index);
    const y = topOf(index, openList) - layerTop;
    const isOpen = props.openRows?.has(index) ?? false;
    rows.push(<TableRow key={index} table={props.id} index={index} row={row} y={y} columns={columns} template={template} chosen={chosen.has(index)} cursor={active.row === index ? active.column : -1} open={isOpen} language={language.value} acts={acts} />);
    if (isOpen && row && props.detail) {
      rows.push(
        <OpenPart key={`d${index}`} top={y + ROW} width={view.width} onHeight={(height) => setHeights((before) => (before[index] === height ? before : { ...before, [index]: height }))}>
          {props.detail(row, first.columns)}
        </OpenPart>,
      );
    }
  }

  return (
    <div class={`table-box${props.fit ? " fit" : ""}`} data-testid={`table-${props.id}`} data-total={first.total} data-filtered={count} aria-busy={shownKey !== key}>
      <div class="table-bar">
        <span class="table-count">
          {count === first.total ? rowsText(count) : `${whole(count)} ${t("of")} ${rowsText(first.total)}`}
        </span>
        {filterCount > 0 && (
          <button type="button" class="chip" onClick={() => setWish({ ...wish, filters: {} })}>
            {t("Filter")}: {Object.keys(wish.filters).map((name) => first.columns.find((column) => column.key === name)?.name ?? name).join(", ")}
            <Icon name="close" />
          </button>
        )}
        {sums !== null && (
          <span class="table-sums">
            {whole(chosen.size)} {t("selected")}
            {sums.map(([name, text]) => (
              <span key={name}>
                Σ {name} <b>{text}</b>
              </span>
            ))}
          </span>
        )}
        {(first.notes ?? []).map((note) => (
          <span key={note} class="table-note">
            {t(note)}
          </span>
        ))}
        <span class="spring" />
        <button type="button" class="button quiet" onClick={() => void copyRows(false)}>
          <Icon name="copy" />
          <span>{t("Copy rows")}</span>
        </button>
        <button type="button" class="button quiet" data-testid="btn-markdown" title={t("Copy rows as a Markdown table")} onClick={() => void copyRows(true)}>
          <span>Markdown</span>
        </button>
        <button type="button" class="button quiet" data-testid="btn-export" onClick={() => void exportCsv()}>
          <Icon name="download" />
          <span>{t("Export CSV")}</span>
        </button>
        <ColumnChooser columns={first.columns.filter((column) => !props.hidden?.includes(column.key))} hidden={layout.hidden} onChange={(hidden) => changeLayout({ ...layout, hidden })} onReset={() => changeLayout({ order: [], widths: {}, hidden: {}, pinned: [] })} {...(props.keysFirst ? { onAsFiled: () => changeLayout({ ...layout, order: first.columns.map((column) => column.key) }) } : {})} />
      </div>
      <div
        ref={scroller}
        class="table-scroll"
        role="grid"
        tabIndex={0}
        aria-label={props.label}
        aria-rowcount={count + 1}
        aria-colcount={columns.length}
        aria-multiselectable="true"
        aria-activedescendant={count ? `${props.id}-${active.row}-${active.column}` : undefined}
        style={props.fit ? { height: `${head + Math.min(content, 420) + (hasTotals ? 30 : 0) + 16}px` } : undefined}
        onKeyDown={onKeyDown}
        onScroll={(event) => {
          const y = event.currentTarget.scrollTop;
          setView((before) => (before.top === y ? before : { ...before, top: y }));
        }}
        onWheel={
          ratio > 1
            ? (event) => {
                // Scaled scrolling would jump over rows; the wheel moves by what it says.
                if (event.ctrlKey || event.shiftKey || !event.deltaY) return;
                event.preventDefault();
                event.currentTarget.scrollTop += event.deltaY / ratio;
              }
            : undefined
        }
      >
        <Heads language={language.value} columns={columns} template={template} width={tableWidth} sort={effectiveSort} filters={wish.filters} pinned={layout.pinned} acts={acts} />
        <div role="rowgroup" class="table-body" style={{ height: `${spacer}px`, width: `${tableWidth}px` }}>
          <div role="presentation" class="table-layer" style={{ transform: `translateY(${layerTop - top + view.top}px)` }}>
            {rows}
          </div>
        </div>
        {hasTotals && (
          <div role="rowgroup" class="table-foot" style={{ width: `${tableWidth}px` }}>
            <div role="row" class="table-totals" style={{ gridTemplateColumns: template }}>
              {columns.map(({ column, stays }, place) => {
                const value = totals[column.key];
                return (
                  <div key={column.key} role="gridcell" class={`cell${numeric(column) ? " number" : ""}${pinnedClass(stays)}`} style={stays ?? undefined} data-key={column.key}>
                    <span class="clip">{value !== undefined && value !== null ? cellText(value, column) : place === 0 ? t("Total") : ""}</span>
                  </div>
                );
              })}
            </div>
          </div>
        )}
      </div>
      {count === 0 && <p class="table-empty">{first.total ? t("No row passes the filters") : t("No rows")}</p>}
    </div>
  );
}

function selectionSums(columns: readonly { column: Column; at: number }[], rows: readonly (Row | undefined)[]): (readonly [string, string])[] {
  return columns
    .filter(({ column }) => numeric(column) && !/%|Id$|ID$|Time \(ms\)|Start/.test(column.name))
    .slice(0, 4)
    .map(({ column, at }) => [column.name, cellText(rows.reduce((sum, row) => sum + (Number(row?.[at]) || 0), 0), column)] as const);
}

/** Values of a column in the rows that are here, when they are few: offered as a set to choose from. */
function distinct(blocks: ReadonlyMap<number, readonly Row[]>, at: number): string[] {
  const found = new Set<string>();
  for (const rows of blocks.values()) {
    for (const row of rows) {
      const value = row[at];
      if (value !== null && value !== undefined) found.add(String(value));
      if (found.size > 30) return [];
    }
  }
  return [...found].sort();
}

function OpenPart(props: { top: number; width: number; onHeight: (height: number) => void; children: ComponentChildren }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(() => props.onHeight(element.offsetHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return (
    <div role="row" class="open-part" style={{ top: `${props.top}px` }}>
      <div role="gridcell" ref={box} style={{ width: `${Math.max(320, props.width - 2)}px` }} class="open-part-inner" onClick={(event) => event.stopPropagation()}>
        {props.children}
      </div>
    </div>
  );
}
