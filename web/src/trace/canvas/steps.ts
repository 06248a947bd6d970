// SPDX-License-Identifier: Apache-2.0
// The step that a window shows, and the moment that times are counted from.

import type { Source } from "../data/source";
import type { Window } from "./paint";

type Steps = Source["meta"]["steps"];

/** The window that these steps fill, on the host and on the device. */
export function fittedTo(source: Source, steps: Steps): [number, number] | null {
  if (!steps.length) return null;
  const from = Math.min(...steps.map((step) => step.start_ns));
  const to = Math.max(...steps.map((step) => Math.max(step.end_ns, step.device_end_ns ?? 0)));
  const margin = (to - from) * 0.01;
  return [from - margin + source.place, to + margin + source.place];
}

/** The step that has most of the window; null when several are shown as a whole, or none. */
export function stepIn(view: Window, source: Source | undefined): number | null {
  const steps = source?.meta.steps ?? [];
  if (!source || !steps.length) return null;
  // As they are fitted; the device may be long with one step when the host is through with the next.
  const shows = (some: Steps): boolean => {
    const [from, to] = fittedTo(source, some)!;
    return Math.abs(view.from - from) + Math.abs(view.to - to) < (to - from) / 100;
  };
  if (steps.length > 1 && shows(steps)) return null;
  const exact = steps.findIndex((step) => shows([step]));
  if (exact >= 0) return exact;
  const inside = steps.map((step) => Math.min(view.to, step.end_ns + source.place) - Math.max(view.from, step.start_ns + source.place));
  const most = inside.reduce((best, ns, i) => (ns > (inside[best] ?? 0) ? i : best), 0);
  const others = inside.reduce((sum, ns, i) => sum + (i === most ? 0 : Math.max(0, ns)), 0);
  return inside[most]! > 0 && others < inside[most]! / 2 ? most : null;
}

/** Where times count from: the start of the step in view, else of the first one; without steps the first event. */
export function originOf(source: Source | undefined, inView: number | null): { readonly ns: number; readonly step: number | null } {
  const steps = source?.meta.steps ?? [];
  if (!source || !steps.length) return { ns: 0, step: null };
  const { step, start_ns: start } = steps[inView ?? 0]!;
  return { ns: start + source.place, step };
}
