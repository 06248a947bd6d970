// SPDX-License-Identifier: Apache-2.0
// Pages of a table, from the server or from rows the page already has; both answer the same questions.

import type { Api, CallOptions, Query } from "../api";

export interface Column {
  readonly key: string;
  readonly name: string;
  readonly unit?: string;
  readonly type: string;
  readonly tooltip?: string;
  readonly shown?: boolean;
}

export type Cell = string | number | boolean | null;
export type Row = readonly Cell[];

export interface Page {
  readonly columns: readonly Column[];
  readonly rows: readonly Row[];
  readonly total: number;
  readonly filtered: number;
  readonly totals?: Readonly<Record<string, number | null>>;
  readonly sort?: readonly (readonly [string, boolean])[];
  readonly notes?: readonly string[];
}

export interface ColumnFilter {
  readonly text?: string;
  readonly min?: number;
  readonly max?: number;
  readonly in?: readonly (string | null)[];
}

export interface PageQuestion {
  readonly q: string;
  readonly sort: readonly (readonly [key: string, desc: boolean])[];
  readonly filters: Readonly<Record<string, ColumnFilter>>;
  readonly offset: number;
  readonly limit: number;
}

export interface Source {
  /** Changes when the rows are other rows: the table then starts again. */
  readonly key: string;
  page(question: PageQuestion, options: CallOptions): Promise<Page>;
  /** Address of all filtered rows as csv. */
  csv?(question: PageQuestion): string;
}

function asQuery(question: PageQuestion): Query {
  return {
    q: question.q || null,
    sort: question.sort.length ? question.sort.map(([key]) => key).join(",") : null,
    desc: question.sort.length ? question.sort.map(([, desc]) => (desc ? 1 : 0)).join(",") : null,
    filter: Object.keys(question.filters).length ? JSON.stringify(question.filters) : null,
  };
}

/** Rows of a route; `pick` finds the page inside a larger answer. */
export function remote<T = Page>(api: Api, route: string, query: Query, pick?: (answer: T) => Page): Source {
  return {
    key: JSON.stringify([api.capture, route, query]),
    async page(question, options) {
      const paging = { offset: question.offset, limit: question.limit };
      const answer = await api.get<T>(route, { ...query, ...asQuery(question), ...paging }, options);
      return pick ? pick(answer) : (answer as unknown as Page);
    },
    csv: (question) => api.url(route, { ...query, ...asQuery(question), format: "csv" }),
  };
}

function matcher(text: string): (value: string) => boolean {
  const expression = /^\/(.+)\/$/.exec(text);
  if (expression) {
    try {
      const pattern = new RegExp(expression[1]!, "i");
      return (value) => pattern.test(value);
    } catch {
      return () => false; // half-typed expression
    }
  }
  const wanted = text.toLowerCase();
  return (value) => value.toLowerCase().includes(wanted);
}

function passes(value: Cell, filter: ColumnFilter): boolean {
  if (filter.text && !matcher(filter.text)(String(value ?? ""))) return false;
  if (filter.min !== undefined && !(typeof value === "number" && value >= filter.min)) return false;
  if (filter.max !== undefined && !(typeof value === "number" && value <= filter.max)) return false;
  return !filter.in || filter.in.includes(value === null ? null : String(value));
}

function compare(a: Cell, b: Cell): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** Rows that are here already. */
export function local(key: string, columns: readonly Column[], rows: readonly Row[], summed: readonly string[] = []): Source {
  const place = new Map(columns.map((column, at) => [column.key, at]));
  return {
    key,
    page(question) {
      const text = question.q ? matcher(question.q) : null;
      const filters = Object.entries(question.filters).map(([name, filter]) => [place.get(name) ?? 0, filter] as const);
      const kept = rows.filter((row) => (!text || text(String(row[0]))) && filters.every(([at, filter]) => passes(row[at] ?? null, filter)));
      if (question.sort.length) {
        kept.sort((a, b) => {
          for (const [name, desc] of question.sort) {
            const at = place.get(name) ?? 0;
            const left = a[at] ?? null;
            const right = b[at] ?? null;
            if (left === null || right === null) {
              if (left !== right) return left === null ? 1 : -1; // nulls last either way
              continue;
            }
            const order = compare(left, right);
            if (order) return desc ? -order : order;
          }
          return 0;
        });
      }
      const totals: Record<string, number> = {};
      for (const name of summed) totals[name] = kept.reduce((sum, row) => sum + (Number(row[place.get(name) ?? 0]) || 0), 0);
      return Promise.resolve({
        columns,
        rows: kept.slice(question.offset, question.offset + question.limit),
        total: rows.length,
        filtered: kept.length,
        totals,
      });
    },
  };
}

/** Text cells that a spreadsheet would run as a formula are made text; numbers stay numbers. */
export function csvText(columns: readonly string[], rows: readonly Row[]): string {
  const quote = (value: Cell): string => {
    if (value === null) return "";
    let text = String(value);
    if (typeof value === "string" && /^[=+\-@]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns.map(quote), ...rows.map((row) => row.map(quote))].map((line) => line.join(",")).join("\r\n") + "\r\n";
}
