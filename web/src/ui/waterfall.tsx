// SPDX-License-Identifier: Apache-2.0
// Diff as a waterfall: from the step of the baseline to that of the other side, row by row; whether each row is real, whether the
// sides can be compared, and the steps themselves.

import type { JSX } from "preact";
import type { Texts } from "../state";
import { Card } from "./controls";
import { inLanguage, t } from "../words";

type Band = readonly [number, number] | null;

export interface WaterfallRow {
  readonly name: Texts;
  readonly label: Texts;
  readonly family: string;
  readonly base: number;
  readonly new: number;
  readonly delta: number;
  readonly calls: number;
  readonly price: number;
  readonly status: string;
  readonly real: boolean;
  readonly below: boolean;
  readonly text: Texts;
  readonly band_ms: Band;
}

export interface Waterfall {
  readonly digits: number;
  readonly rows: readonly WaterfallRow[];
  readonly whole: { readonly base: number; readonly new: number; readonly delta: number };
  readonly more: number;
  readonly band_ms: Band;
}

export interface Check {
  readonly name: Texts;
  readonly same: boolean | null;
  readonly about: string;
  readonly mark: string;
  readonly status: string;
  readonly sides: Readonly<Record<keyof Texts, readonly [string, string]>>;
}

export interface Gate {
  readonly exit: number;
  readonly answer: Texts;
  readonly checks: readonly { readonly name: string; readonly status: string; readonly text: Texts }[];
}

export interface Samples {
  readonly of: string;
  readonly base: readonly number[];
  readonly new: readonly number[];
}

const CUT = 0.35; // of the larger step: a smaller change is not seen on an axis from zero
const TICKS = 4;

/** The axis holds every level that the bars pass; it begins at zero unless the change would be too small to see. */
function axisOf(levels: readonly number[]): readonly [from: number, to: number] {
  const [low, high] = [Math.min(...levels), Math.max(...levels)];
  if (high - low > CUT * high) return [Math.min(0, low), high * 1.04];
  const margin = (high - low || Math.abs(high) * 0.02 || 1) * 0.3;
  return [low - margin, high + margin * 0.4];
}

export function WaterfallTable({ data }: { data: Waterfall }): JSX.Element {
  const scale = 10 ** data.digits;
  const figure = (units: number, sign: boolean): string => {
    const text = (Math.abs(units) / scale).toLocaleString("en-US", { minimumFractionDigits: data.digits, maximumFractionDigits: data.digits });
    return `${units < 0 ? "−" : sign && units > 0 ? "+" : ""}${text}`;
  };
  const part = (units: number): string => (units === 0 ? "–" : figure(units, true));
  const levels = [data.whole.base / scale];
  for (const row of data.rows) levels.push(levels.at(-1)! + row.delta / scale);
  const bands = [...data.rows.map((row, at) => row.band_ms?.map((one) => levels[at]! + one) ?? []), data.band_ms?.map((one) => levels[0]! + one) ?? []].flat();
  const [from, to] = axisOf([...levels, ...bands]);
  const at = (ms: number): number => (100 * (ms - from)) / (to - from);
  const cut = from > 0;
  const hint = data.band_ms ? t("95 % band") : t("no band");
  return (
    <table class="plain waterfall" data-testid="waterfall" style={{ backgroundSize: `${100 / TICKS}% 100%` }}>
      <thead>
        <tr>
          <th scope="col">{t("Row")}</th><th scope="col" class="number">ms/{t("step")}</th><th scope="col" class="number">{t("by calls")}</th><th scope="col" class="number">{t("by price")}</th>
          <th scope="col" class="waterfall-axis" title={data.band_ms ? hint : t("no band: too few samples")}>{cut ? `${t("from")} ${from.toLocaleString("en-US", { maximumFractionDigits: 2 })} ms` : t("from 0")} · {data.band_ms && "⊢⊣ "}{hint}</th>
          <th scope="col">{t("Real?")}</th>
        </tr>
      </thead>
      <tbody>
        <tr class="strong">
          <td>{t("Baseline")}</td><td class="number">{figure(data.whole.base, false)}</td><td /><td />
          <td class="waterfall-cell"><i class={`waterfall-bar whole${cut ? " cut" : ""}`} style={{ left: 0, width: `${at(levels[0]!)}%` }} /><i class="waterfall-step" style={{ left: `${at(levels[0]!)}%` }} /></td><td />
        </tr>
        {data.rows.map((row, place) => {
          const [begin, end] = [levels[place]!, levels[place + 1]!];
          return (
            <tr key={place} data-testid="waterfall-row" data-delta={row.delta / scale} title={inLanguage(row.label)}>
              <td><span class="waterfall-name"><i class={`part ${row.family}`} aria-hidden="true" /><span class="clip">{inLanguage(row.name)}</span></span></td>
              <td class="number">{figure(row.delta, true)}</td><td class="number muted">{part(row.calls)}</td><td class="number muted">{part(row.price)}</td>
              <td class="waterfall-cell">
                <i class={`waterfall-bar ${row.delta > 0 ? "more" : "less"}${row.real ? "" : " pale"}`} style={{ left: `${at(Math.min(begin, end))}%`, width: `${Math.abs(at(end) - at(begin))}%` }} />
                {row.band_ms && <i class="waterfall-band" style={{ left: `${at(begin + row.band_ms[0])}%`, width: `${at(begin + row.band_ms[1]) - at(begin + row.band_ms[0])}%` }} />}
                <i class="waterfall-step" style={{ left: `${at(end)}%` }} />
              </td>
              <td class={row.real ? "strong" : "muted"}>{row.below ? t("below 1 %") : inLanguage(row.text)}</td>
            </tr>
          );
        })}
        <tr class="strong">
          <td>{t("Experimental")}</td><td class="number">{figure(data.whole.new, false)}</td><td /><td />
          <td class="waterfall-cell">
            <i class={`waterfall-bar whole${cut ? " cut" : ""}`} style={{ left: 0, width: `${at(data.whole.new / scale)}%` }} />
            {data.band_ms && <i class="waterfall-band" style={{ left: `${at(levels[0]! + data.band_ms[0])}%`, width: `${at(levels[0]! + data.band_ms[1]) - at(levels[0]! + data.band_ms[0])}%` }} />}
          </td>
          <td>{figure(data.whole.delta, true)} ms</td>
        </tr>
      </tbody>
    </table>
  );
}

const STAMPS: Readonly<Record<number, readonly [mark: string, word: string, look: string]>> = {
  0: ["✓", "Within budget", "good"],
  1: ["✕", "Regression", "bad"],
  3: ["?", "Cannot judge", "unsure"],
};
const LOOKS: Readonly<Record<string, readonly [mark: string, look: string]>> = { pass: ["✓", "good"], fail: ["✕", "bad"], "cannot tell": ["?", "unsure"] };

export function GateCard({ gate, onMarkdown }: { gate: Gate | null; onMarkdown: () => void }): JSX.Element {
  const [mark, word, look] = STAMPS[gate?.exit ?? 3] ?? STAMPS[3]!;
  return (
    <Card title={t("Gate")} testid="diff-gate" tools={<button type="button" class="link" data-testid="btn-diff-markdown" onClick={onMarkdown}>{t("as Markdown")}</button>}>
      {gate ? (
        <div class="gate">
          <p class={`gate-stamp ${look}`}><span>{mark} {t(word)}</span><span>exit {gate.exit}</span></p>
          {gate.checks.map((one) => <Line key={one.name} status={one.status}><b>{one.name}</b> {inLanguage(one.text)}</Line>)}
        </div>
      ) : (
        <div class="gate">
          <p class="muted">{t("No budget is given. With one, this card says whether the change is allowed, as the command does:")}</p>
          <code>stepscope view … --gate budget.toml</code>
        </div>
      )}
    </Card>
  );
}

function Line({ status, children }: { status: string; children: JSX.Element | readonly (JSX.Element | string)[] | string }): JSX.Element {
  const [mark, look] = LOOKS[status] ?? LOOKS["cannot tell"]!;
  return <p class={`gate-line ${look}`}><i aria-hidden="true">{mark}</i><span>{children}</span></p>;
}

/** What is the same is one line; what differs or is not known has a line each. */
export function ComparableCard({ checks, notes }: { checks: readonly Check[]; notes: readonly string[] }): JSX.Element {
  const same = checks.filter((one) => one.same === true);
  const others = checks.filter((one) => one.same === false);
  const unknown = checks.filter((one) => one.same === null);
  const names = (list: readonly Check[]): string => list.map((one) => inLanguage(one.name)).join(t(", "));
  return (
    <Card title={t("Comparable?")} testid="diff-checks">
      <div class="gate">
        {others.map((one) => {
          const [base, other] = inLanguage(one.sides);
          return <Line key={one.name.en} status={one.status}><b>{inLanguage(one.name)}</b> <span title={`${base} → ${other}`}>{short(base)} → {short(other)}</span></Line>;
        })}
        {same.length > 0 && <Line status="pass">{`${t("the same")}${t(": ")}${names(same)}`}</Line>}
        {unknown.length > 0 && <Line status="cannot tell">{`${t("not recorded")}${t(": ")}${names(unknown)}`}</Line>}
        {notes.map((note) => <Line key={note} status="cannot tell">{note}</Line>)}
      </div>
    </Card>
  );
}

const short = (text: string): string => (text.length > 60 ? `${text.slice(0, 57)}…` : text);

export function StepsCard({ samples }: { samples: Samples }): JSX.Element | null {
  const all = [...samples.base, ...samples.new];
  if (!all.length) return null;
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const margin = (high - low || high * 0.02 || 1) * 0.08;
  const [from, to] = [low - margin, high + margin];
  const digits = to - from < 0.1 ? 3 : to - from < 1 ? 2 : 1;
  const count = digits > 1 ? 2 : 3;
  const ticks = Array.from({ length: count }, (_, one) => from + ((to - from) * one) / (count - 1));
  const row = (name: string, values: readonly number[], look: string): JSX.Element => (
    <div class="dots-row">
      <span>{name}</span>
      <div role="img" aria-label={`${name}: ${values.length}`}>
        {values.map((value, at) => <i key={at} class={look} style={{ left: `${(100 * (value - from)) / (to - from)}%`, top: `${5 + (at % 3) * 4}px` }} title={`${value.toFixed(3)} ms`} />)}
      </div>
    </div>
  );
  return (
    <Card title={t(samples.of === "runs" ? "Runs" : "Steps")} note={t("ms, one dot each")} testid="diff-steps">
      <div class="dots">
        {row(t("Baseline"), samples.base, "base")}
        {row(t("Experimental"), samples.new, "new")}
        <div class="dots-axis">{ticks.map((one) => <span key={one}>{one.toFixed(digits)}</span>)}</div>
      </div>
    </Card>
  );
}

export interface Implementation {
  readonly op: string;
  readonly base: string;
  readonly new: string;
  readonly delta_ms: number;
}

export function ImplementationsCard({ rows }: { rows: readonly Implementation[] }): JSX.Element | null {
  if (!rows.length) return null;
  return (
    <Card title={t("Other kernels for the same operator")} testid="diff-implementations">
      <div class="gate">
        {rows.map((one) => (
          <p key={`${one.op} ${one.base}`} class="implementation">
            <b>{one.op}</b> {one.delta_ms > 0 ? "+" : "−"}{Math.abs(one.delta_ms).toFixed(2)} ms<br />
            <span class="muted" title={`${one.base} → ${one.new}`}>{short(one.base)} → {short(one.new)}</span>
          </p>
        ))}
      </div>
    </Card>
  );
}
