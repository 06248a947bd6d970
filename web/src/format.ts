// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them. Copies and exports never pass through here.

import { units } from "./settings";

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const THREE = new Intl.NumberFormat("en-US", { minimumFractionDigits: 3, maximumFractionDigits: 3 });
const TWO = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const SHORT = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });

const TIMES: readonly (readonly [string, number])[] = [["ns", 1], ["us", 1e3], ["ms", 1e6], ["s", 1e9]];
const SIZES: readonly (readonly [string, number])[] = [["B", 1], ["KB", 1024], ["MB", 1024 ** 2], ["GB", 1024 ** 3]];

function pick(value: number, unit: string, scale: readonly (readonly [string, number])[]): string {
  const factor = scale.find(([name]) => name === unit)?.[1] ?? 1;
  const base = value * factor;
  let best = scale[0]!;
  for (const step of scale) if (Math.abs(base) >= step[1]) best = step;
  return `${SHORT.format(base / best[1])} ${best[0]}`;
}

/** A value with its unit chosen by size, whatever the unit switch says. */
export function auto(value: number, unit: string): string {
  if (TIMES.some(([name]) => name === unit)) return pick(value, unit, TIMES);
  if (unit === "bytes") return pick(value, "B", SIZES);
  if (SIZES.some(([name]) => name === unit)) return pick(value, unit, SIZES);
  return unit === "%" ? `${TWO.format(value)} %` : `${SHORT.format(value)}${unit ? ` ${unit}` : ""}`;
}

export interface Kind {
  readonly name?: string;
  readonly type: string;
  readonly unit?: string | undefined;
}

export const hasAutoUnit = (unit: string | undefined): boolean =>
  unit !== undefined && (TIMES.some(([name]) => name === unit) || SIZES.some(([name]) => name === unit) || unit === "bytes");

/** A cell of a table. */
export function cellText(value: unknown, kind: Kind): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "Yes" : "No";
  if (typeof value !== "number") return typeof value === "object" ? JSON.stringify(value) : String(value);
  if (units.value === "auto" && hasAutoUnit(kind.unit)) return auto(value, kind.unit ?? "");
  if (kind.name && /(^|[ _])id$/i.test(kind.name)) return String(value); // numbers that name something
  if (kind.type === "int" || (kind.unit === "bytes" && Number.isInteger(value))) return WHOLE.format(value);
  if (kind.unit === "%") return TWO.format(value);
  return THREE.format(value);
}

/** Headings carry their unit; with automatic units the cells do. */
export function headingText(name: string, unit: string | undefined): string {
  return units.value === "auto" && hasAutoUnit(unit) ? name.replace(/\s*\((ns|us|ms|s|B|KB|MB|GB|bytes)\)$/, "") : name;
}

export const whole = (value: number): string => WHOLE.format(value);
export const percent = (share: number): string => `${TWO.format(share * 100)} %`;
export const three = (value: number): string => THREE.format(value);

export function timeText(us: number): string {
  return units.value === "auto" ? auto(us, "us") : `${THREE.format(us)} us`;
}

/** Both ends of a long name stay readable. */
export function middle(text: string, most: number): string {
  if (text.length <= most) return text;
  const head = Math.ceil((most - 1) * 0.6);
  return `${text.slice(0, head)}…${text.slice(text.length - (most - 1 - head))}`;
}
