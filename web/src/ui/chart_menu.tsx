// SPDX-License-Identifier: Apache-2.0
// The menu of a chart: the same numbers as a table, csv, PNG or SVG.

import type { JSX } from "preact";
import { t } from "../words";
import { download, Popover } from "./controls";
import { type Cell, csvText } from "./pages";
import { type Picture, pngOf, svgText } from "./picture";

export function ChartMenu(props: {
  name: string;
  asTable: boolean;
  onTable: () => void;
  data: () => { columns: string[]; rows: Cell[][] };
  picture?: () => Picture;
  png?: () => Promise<Blob>;
}): JSX.Element {
  const png = props.png ?? (props.picture ? () => pngOf(props.picture!()) : null);
  return (
    <Popover icon="menu" small label={`${t("Chart menu")} ${props.name}`} align="right">
      {(close) => (
        <div class="menu-list">
          <button type="button" onClick={() => { props.onTable(); close(); }}>{props.asTable ? "✓ " : ""}{t("as table")}</button>
          <button
            type="button"
            onClick={() => {
              const { columns, rows } = props.data();
              download(`${props.name}.csv`, csvText(columns, rows), "text/csv");
              close();
            }}
          >
            {t("as CSV")}
          </button>
          {png && (
            <button type="button" onClick={() => { void png().then((blob) => download(`${props.name}.png`, blob)); close(); }}>
              {t("as PNG")}
            </button>
          )}
          {props.picture && (
            <button type="button" onClick={() => { download(`${props.name}.svg`, svgText(props.picture!()), "image/svg+xml"); close(); }}>
              {t("as SVG")}
            </button>
          )}
        </div>
      )}
    </Popover>
  );
}

/** The table twin of a chart. */
export function PlainTable({ columns, rows, label }: { columns: readonly string[]; rows: readonly (readonly Cell[])[]; label: string }): JSX.Element {
  return (
    <div class="plain-scroll" tabIndex={0} role="region" aria-label={label}>
      <table class="plain">
        <thead>
          <tr>
            {columns.map((name) => (
              <th key={name} scope="col">{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={at}>
              {row.map((value, place) => (
                <td key={place} class={typeof value === "number" ? "number" : ""}>
                  {typeof value === "number" ? value.toLocaleString("en-US", { maximumFractionDigits: 3 }) : String(value ?? "")}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
