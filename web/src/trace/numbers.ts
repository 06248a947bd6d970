// SPDX-License-Identifier: Apache-2.0
// Times of the timeline as people read them.

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 3 });
const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const UNITS: readonly (readonly [string, number])[] = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]];

export const whole = (value: number): string => WHOLE.format(value);
export const grouped = (value: number): string => GROUPED.format(value);

/** A length: the unit that gives a number from 1 to 1,000, nothing rounded away below the microsecond. */
export function length(ns: number): string {
  const size = Math.abs(ns);
  const [unit, factor] = UNITS.find(([, one]) => size >= one) ?? UNITS[3]!;
  return `${GROUPED.format(ns / factor)} ${unit}`;
}

/** A length in full: microseconds with three digits, as in the tables. */
export const exactUs = (ns: number): string => `${(ns / 1000).toLocaleString("en-US", { minimumFractionDigits: 3, maximumFractionDigits: 3 })} us`;

export interface Ticks {
  readonly step: number;
  readonly first: number;
  readonly format: (ns: number) => string;
}

/** Round distances of marks so that about `most` of them fit. */
export function ticks(from: number, to: number, most: number): Ticks {
  const raw = (to - from) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(Math.max(raw, 1e-3)));
  const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= raw) ?? 10 * power);
  const [unit, factor] = UNITS.find(([, one]) => step >= one) ?? UNITS[3]!;
  return {
    step,
    first: Math.ceil(from / step) * step + 0, // no minus zero
    format: (ns) => `${GROUPED.format(Math.round(ns) / factor + 0)} ${unit}`,
  };
}

/** Epoch time of an instant, as the files write it: "1736412474607990.240". */
export function rawUs(baseNs: string, ns: number): string {
  const time = BigInt(baseNs) + BigInt(Math.round(ns));
  const digits = time.toString().padStart(4, "0");
  return `${digits.slice(0, -3)}.${digits.slice(-3)}`;
}
