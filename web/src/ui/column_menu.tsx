// SPDX-License-Identifier: Apache-2.0
// What can be done with one column: sort, filter, pin, move, hide; and the list of all columns.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { t } from "../words";
import { Popover } from "./controls";
import type { Column, ColumnFilter } from "./pages";

export function ColumnMenu(props: {
  column: Column;
  filter: ColumnFilter | undefined;
  pinned: boolean;
  values: () => readonly string[];
  onSort: (desc: boolean) => void;
  onFilter: (filter: ColumnFilter | null) => void;
  onPin: () => void;
  onHide: () => void;
  onMove: (by: number) => void;
}): JSX.Element {
  const { column } = props;
  const number = column.type === "int" || column.type === "float";
  return (
    <Popover icon="filter" small label={`${t("Filter column")} ${column.name}`} active={props.filter !== undefined} testid={`filter-${column.key}`}>
      {(close) => (
        <div class="column-menu">
          <strong>{column.name}</strong>
          {column.tooltip && <p class="hint">{t(column.tooltip)}</p>}
          {number ? <RangeFilter {...props} values={[]} close={close} /> : <TextFilter {...props} values={props.values()} close={close} />}
          <div class="menu-list">
            <button type="button" onClick={() => { props.onSort(false); close(); }}>{t("Sort ascending")}</button>
            <button type="button" onClick={() => { props.onSort(true); close(); }}>{t("Sort descending")}</button>
            <button type="button" onClick={() => { props.onPin(); close(); }}>{props.pinned ? t("Unpin") : t("Pin")}</button>
            <button type="button" onClick={() => props.onMove(-1)}>{t("Move left")}</button>
            <button type="button" onClick={() => props.onMove(1)}>{t("Move right")}</button>
            <button type="button" onClick={() => { props.onHide(); close(); }}>{t("Hide column")}</button>
          </div>
        </div>
      )}
    </Popover>
  );
}

interface FilterProps {
  filter: ColumnFilter | undefined;
  values: readonly string[];
  onFilter: (filter: ColumnFilter | null) => void;
  close: () => void;
}

function Buttons({ onFilter, close }: FilterProps): JSX.Element {
  return (
    <div class="row">
      <button type="submit" class="button primary">{t("Apply")}</button>
      <button type="button" class="button" onClick={() => { onFilter(null); close(); }}>{t("Clear")}</button>
    </div>
  );
}

function RangeFilter(props: FilterProps): JSX.Element {
  const [low, setLow] = useState(props.filter?.min === undefined ? "" : String(props.filter.min));
  const [high, setHigh] = useState(props.filter?.max === undefined ? "" : String(props.filter.max));
  return (
    <form
      class="filter-form"
      onSubmit={(event) => {
        event.preventDefault();
        const filter: ColumnFilter = { ...(low !== "" ? { min: Number(low) } : {}), ...(high !== "" ? { max: Number(high) } : {}) };
        props.onFilter(low === "" && high === "" ? null : filter);
        props.close();
      }}
    >
      <div class="row">
        <label>{t("from")} <input type="number" step="any" value={low} onInput={(event) => setLow(event.currentTarget.value)} /></label>
        <label>{t("to")} <input type="number" step="any" value={high} onInput={(event) => setHigh(event.currentTarget.value)} /></label>
      </div>
      <Buttons {...props} />
    </form>
  );
}

function TextFilter(props: FilterProps): JSX.Element {
  const [text, setText] = useState(props.filter?.text ?? "");
  const [chosen, setChosen] = useState<readonly string[]>((props.filter?.in ?? []).filter((one) => one !== null));
  return (
    <form
      class="filter-form"
      onSubmit={(event) => {
        event.preventDefault();
        const filter: ColumnFilter = { ...(text ? { text } : {}), ...(chosen.length ? { in: chosen } : {}) };
        props.onFilter(text || chosen.length ? filter : null);
        props.close();
      }}
    >
      <input type="search" aria-label={t("Filter")} placeholder={t("Text or /regular expression/")} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      {props.values.length > 1 && (
        <div class="filter-values">
          {props.values.map((value) => (
            <label key={value}>
              <input
                type="checkbox"
                checked={chosen.includes(value)}
                onChange={(event) => setChosen(event.currentTarget.checked ? [...chosen, value] : chosen.filter((one) => one !== value))}
              />
              <span class="clip">{value}</span>
            </label>
          ))}
        </div>
      )}
      <Buttons {...props} />
    </form>
  );
}

/** Columns by what a reader is after; names and what the table is sorted by stay. */
const PRESETS: readonly (readonly [name: string, keep: (column: Column, at: number) => boolean])[] = [
  ["All columns", () => true],
  ["Times", (column, at) => at === 0 || /\((us|ms|ns)\)|Calls|Count|%/.test(column.name)],
  ["Shapes and types", (column, at) => at === 0 || /Shape|Type|Format|Duration|Calls/i.test(column.name)],
  ["Counters", (column, at) => at === 0 || /ratio|cycles|_time\(us\)|miss|bw|utili[sz]ation|Occupancy|Duration/i.test(column.name)],
];

export function ColumnChooser(props: {
  columns: readonly Column[];
  hidden: Readonly<Record<string, boolean>>;
  onChange: (hidden: Record<string, boolean>) => void;
  onReset: () => void;
  /** Puts the columns into the order of the file. */
  onAsFiled?: () => void;
}): JSX.Element {
  return (
    <Popover icon="columns" label={t("Columns")} text={t("Columns")} align="right" testid="btn-columns">
      {() => (
        <div class="column-menu">
          <div class="presets" role="group" aria-label={t("Presets")}>
            {PRESETS.filter(([name, keep]) => name === "All columns" || new Set(props.columns.map((column, at) => at > 0 && keep(column, at))).size > 1).map(([name, keep]) => (
              <button key={name} type="button" class="chip toggle" data-preset={name} onClick={() => props.onChange(Object.fromEntries(props.columns.map((column, at) => [column.key, !keep(column, at)])))}>{t(name)}</button>
            ))}
            {props.onAsFiled && <button type="button" class="chip toggle" data-preset="file" onClick={props.onAsFiled}>{t("As in the file")}</button>}
          </div>
          <div class="filter-values tall">
            {props.columns.map((column) => (
              <label key={column.key} title={column.tooltip && t(column.tooltip)}>
                <input
                  type="checkbox"
                  checked={!(props.hidden[column.key] ?? column.shown === false)}
                  onChange={(event) => props.onChange({ ...props.hidden, [column.key]: !event.currentTarget.checked })}
                />
                <span class="clip">{column.name}</span>
              </label>
            ))}
          </div>
          <button type="button" class="button" onClick={props.onReset}>{t("Reset")}</button>
        </div>
      )}
    </Popover>
  );
}
