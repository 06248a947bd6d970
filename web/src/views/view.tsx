// SPDX-License-Identifier: Apache-2.0
// What every view is given, and the box it stands in.

import type { ComponentChildren, JSX } from "preact";
import type { Api } from "../api";
import { setParams } from "../state";
import { Select } from "../ui/controls";
import { t } from "../words";

export interface ViewProps {
  readonly api: Api;
  /** "npu", "gpu", "cpu", or empty while unknown. */
  readonly device: string;
}

/** Kinds of problems of a run after which no rank is named, so none is cleared either. */
export const UNDECIDED: readonly string[] = ["one_step", "replay", "cycle", "no_calls", "no_common_steps"];

export function Frame(props: { name: string; ready: boolean; fill?: boolean; children: ComponentChildren }): JSX.Element {
  return (
    <div class={`view${props.fill ? " fill" : ""}`} data-testid={`view-${props.name}`} data-ready={props.ready ? "true" : "false"}>
      {props.children}
    </div>
  );
}

/** One step or all of them; the choice holds for all views. */
export function StepSelect({ steps, step }: { steps: readonly number[]; step: string }): JSX.Element | null {
  if (!steps.length) return null;
  const options = [{ value: "", label: t("all") }, ...steps.map((one) => ({ value: String(one), label: String(one) }))];
  return <Select label={t("Step")} testid="select-step" value={step} options={options} onChange={(value) => setParams({ step: value || null })} />;
}

export function Toolbar({ children }: { children: ComponentChildren }): JSX.Element {
  return <div class="toolbar">{children}</div>;
}
