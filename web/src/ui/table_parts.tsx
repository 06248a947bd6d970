// SPDX-License-Identifier: Apache-2.0
// Rows and headings of the table.

import { Component, type ComponentChildren, type JSX } from "preact";
import { cellText, headingText } from "../format";
import { ColumnMenu } from "./column_menu";
import { Icon } from "./icons";
import type { Cell, Column, ColumnFilter, Row } from "./pages";
import { t } from "../words";
import { numeric } from "./table_widths";

/** Drawn instead of the plain text, by column. */
export type Cells = Readonly<Record<string, (value: Cell, row: Row, index: number) => ComponentChildren>>;

export interface Shown {
  readonly column: Column;
  readonly at: number;
  readonly width: number;
  /** Where the column stays while others are scrolled: px from that edge. */
  readonly stays: { readonly left: string; readonly right?: string } | null;
}

export const pinnedClass = (stays: Shown["stays"]): string => (stays === null ? "" : "right" in stays ? " pinned right" : " pinned");

/** What rows and headings call back; reached through a ref, so that it never makes them draw again. */
export interface Acts {
  readonly pick: (index: number, event: { shiftKey: boolean; ctrlKey: boolean; metaKey: boolean }) => void;
  readonly cells: Cells;
  readonly hover: ((row: Row | null) => void) | null;
  readonly trace: ((row: Row) => void) | null;
  readonly tools: ((row: Row, index: number) => ComponentChildren) | null;
  readonly sort: (name: string, more: boolean, column: Column) => void;
  readonly wish: (change: (before: Wish) => Wish) => void;
  readonly layout: (change: (before: Layout) => Layout) => void;
  readonly values: (at: number) => string[];
  readonly keys: readonly string[];
}

export interface Layout {
  order: string[];
  widths: Record<string, number>;
  hidden: Record<string, boolean>;
  pinned: string[];
}

export interface Wish {
  sort: (readonly [string, boolean])[];
  filters: Record<string, ColumnFilter>;
}

interface RowProps {
  readonly table: string;
  readonly index: number;
  readonly row: Row | undefined;
  readonly y: number;
  readonly columns: readonly Shown[];
  readonly template: string;
  readonly chosen: boolean;
  readonly cursor: number;
  readonly open: boolean;
  /** Words of its buttons. */
  readonly language: string;
  readonly acts: { readonly current: Acts };
}

/** Draws again only when something it shows is different. */
abstract class Still<P extends object> extends Component<P> {
  override shouldComponentUpdate(next: P): boolean {
    return (Object.keys(next) as (keyof P)[]).some((key) => next[key] !== this.props[key]);
  }
}

export class TableRow extends Still<RowProps> {
  override render(): JSX.Element {
    const { table, index, row, y, columns, template, chosen, cursor, acts } = this.props;
    const named = columns.findIndex(({ column }) => column.type === "text"); // the column that says what the row is
    return (
      <div
        role="row"
        aria-rowindex={index + 2}
        aria-selected={chosen}
        class={`table-row${chosen ? " chosen" : ""}${cursor >= 0 ? " active" : ""}${index % 2 ? " odd" : ""}`}
        style={{ top: `${y}px`, gridTemplateColumns: template }}
        onClick={(event) => acts.current.pick(index, event)}
        onMouseEnter={() => row && acts.current.hover?.(row)}
        onMouseLeave={() => acts.current.hover?.(null)}
      >
        {columns.map(({ column, at, stays }, place) => {
          const value = row ? (row[at] ?? null) : null;
          const text = row ? cellText(value, column) : "";
          const special = acts.current.cells[column.key];
          return (
            <div
              key={column.key}
              id={`${table}-${index}-${place}`}
              role="gridcell"
              class={`cell${numeric(column) ? " number" : ""}${pinnedClass(stays)}${cursor === place ? " cursor" : ""}`}
              style={stays ?? undefined}
              title={text.length > 12 ? text : undefined}
              data-key={column.key}
            >
              {row ? special ? special(value, row, index) : <span class="clip">{text}</span> : <i class="ghost" />}
              {row && place === named && (acts.current.tools || acts.current.trace) && (
                <span class="row-tools">
                  {acts.current.tools?.(row, index)}
                  {acts.current.trace && (
                    <button type="button" class="link" data-testid="show-in-trace" title={`${t("Show in Trace")} (t)`} aria-label={t("Show in Trace")} onClick={(event) => { event.stopPropagation(); acts.current.trace?.(row); }}>
                      <Icon name="trace" />
                    </button>
                  )}
                </span>
              )}
            </div>
          );
        })}
      </div>
    );
  }
}

interface HeadsProps {
  readonly language: string;
  readonly columns: readonly Shown[];
  readonly template: string;
  readonly width: number;
  readonly sort: readonly (readonly [string, boolean])[];
  readonly filters: Readonly<Record<string, ColumnFilter>>;
  readonly pinned: readonly string[];
  readonly acts: { readonly current: Acts };
}

export class Heads extends Component<HeadsProps> {
  override shouldComponentUpdate(next: HeadsProps): boolean {
    const shownState = (props: HeadsProps): string => JSON.stringify([props.sort, props.filters, props.pinned, props.language]);
    return next.columns !== this.props.columns || next.template !== this.props.template || shownState(next) !== shownState(this.props);
  }

  override render(): JSX.Element {
    const { columns, template, width, sort, filters, pinned, acts } = this.props;
    return (
      <div role="rowgroup" class="table-head" style={{ width: `${width}px` }}>
        <div role="row" aria-rowindex={1} class="table-heads" style={{ gridTemplateColumns: template }}>
          {columns.map(({ column, at, stays, width: own }, place) => {
            const order = sort.find(([name]) => name === column.key);
            const name = column.key;
            return (
              <div
                key={name}
                role="columnheader"
                aria-sort={order ? (order[1] ? "descending" : "ascending") : "none"}
                class={`heading${numeric(column) ? " number" : ""}${pinnedClass(stays)}`}
                style={stays ?? undefined}
                data-testid={`col-${name}`}
              >
                <button type="button" class="heading-sort" title={column.tooltip ? t(column.tooltip) : column.name} onClick={(event) => acts.current.sort(name, event.shiftKey, column)}>
                  <span>{headingText(column.name, column.unit)}</span>
                  {order && <Icon name={order[1] ? "down" : "up"} />}
                </button>
                <ColumnMenu
                  column={column}
                  filter={filters[name]}
                  pinned={pinned.includes(name)}
                  values={() => (numeric(column) ? [] : acts.current.values(at))}
                  onSort={(desc) => acts.current.wish((wish) => ({ ...wish, sort: [[name, desc]] }))}
                  onFilter={(filter) =>
                    acts.current.wish((wish) => {
                      const { [name]: _, ...others } = wish.filters;
                      return { ...wish, filters: filter ? { ...others, [name]: filter } : others };
                    })
                  }
                  onPin={() => acts.current.layout((layout) => ({ ...layout, pinned: toggled(layout.pinned, name) }))}
                  onHide={() => acts.current.layout((layout) => ({ ...layout, hidden: { ...layout.hidden, [name]: true } }))}
                  onMove={(by) => acts.current.layout((layout) => ({ ...layout, order: moved([...acts.current.keys], place, by) }))}
                />
                <Grip width={own} onWidth={(next) => acts.current.layout((layout) => ({ ...layout, widths: { ...layout.widths, [name]: next } }))} />
              </div>
            );
          })}
        </div>
      </div>
    );
  }
}

const toggled = (list: readonly string[], name: string): string[] => (list.includes(name) ? list.filter((one) => one !== name) : [...list, name]);

function moved(names: string[], place: number, by: number): string[] {
  const to = Math.max(0, Math.min(names.length - 1, place + by));
  const next = [...names];
  const [name] = next.splice(place, 1);
  next.splice(to, 0, name!);
  return next;
}

function Grip({ width, onWidth }: { width: number; onWidth: (width: number) => void }): JSX.Element {
  return (
    <span
      class="grip"
      aria-hidden="true"
      onPointerDown={(event) => {
        event.preventDefault();
        event.stopPropagation();
        const grip = event.currentTarget;
        const startX = event.clientX;
        grip.setPointerCapture(event.pointerId);
        const move = (next: PointerEvent): void => onWidth(Math.max(48, width + next.clientX - startX));
        const end = (): void => {
          grip.removeEventListener("pointermove", move);
          grip.removeEventListener("pointerup", end);
        };
        grip.addEventListener("pointermove", move);
        grip.addEventListener("pointerup", end);
      }}
    />
  );
}
