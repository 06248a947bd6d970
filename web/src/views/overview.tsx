// SPDX-License-Identifier: Apache-2.0
// Overview: what the capture is, where the steps' time goes, what to look at first.

import type { JSX } from "preact";
import { auto, three, timeText, whole } from "../format";
import { openView, param, selection, setParams, type Texts } from "../state";
import { Bars } from "../ui/bars";
import { Card } from "../ui/controls";
import { useLoad } from "../ui/load";
import { Await } from "../ui/messages";
import { colourOf } from "../colour";
import { Pie } from "../ui/pie";
import { inLanguage, t } from "../words";
import { type Finding, FindingItem } from "./finding";
import { Frame, type ViewProps } from "./view";

interface Fact {
  readonly name: string;
  readonly value: unknown;
  readonly unit?: string;
  readonly device?: string | number | null;
}

interface Overview {
  readonly configuration: readonly Fact[];
  readonly device_summary: readonly Fact[];
  readonly gpu_summary: readonly Fact[];
  readonly execution: { readonly columns: readonly string[]; readonly rows: readonly (readonly [string, number, number | null])[] } | null;
  readonly average_step_us: number | null;
  readonly step: { readonly us: number; readonly count: number; readonly marked: boolean; readonly differs: boolean };
  readonly steps: { readonly categories: readonly string[]; readonly rows: readonly { step: number; values: readonly number[]; total: number; slow: boolean }[]; readonly median_us: number | null; readonly mad_us: number | null } | null;
  readonly findings: readonly Finding[];
  readonly notes: readonly string[];
  readonly headline: Texts;
}

function factText(fact: Fact): string {
  const { value, unit } = fact;
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") {
    if (unit === "bytes" || unit === "us" || unit === "ns" || unit === "ms") return auto(value, unit);
    if (Number.isInteger(value)) return `${whole(value)}${unit ? ` ${unit}` : ""}`;
    return `${value.toLocaleString("en-US", { maximumFractionDigits: 2 })}${unit ? ` ${unit}` : ""}`;
  }
  if (Array.isArray(value)) return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : `${String(value)}${unit ? ` ${unit}` : ""}`;
}

function Facts({ title, facts, testid }: { title: string; facts: readonly Fact[]; testid: string }): JSX.Element | null {
  if (!facts.length) return null;
  const devices = new Set(facts.map((fact) => fact.device ?? ""));
  return (
    <Card title={title} testid={testid}>
      <dl class="facts">
        {facts.map((fact, at) => (
          <div key={at}>
            <dt>{fact.name}{devices.size > 1 && fact.device !== undefined && fact.device !== null ? ` · ${fact.device}` : ""}</dt>
            <dd>{factText(fact)}</dd>
          </div>
        ))}
      </dl>
    </Card>
  );
}

/** The figure of the Verdict; the table below it has the means of all marks, which may be others. */
function MeanStep({ data }: { data: Overview }): JSX.Element | null {
  const { step, average_step_us: average } = data;
  if (!step.us) return null;
  const name = step.marked ? t(step.count > 1 ? "mean step" : "step") : t("from the first to the last task");
  const marks = step.marked ? t("Mean of all marks on the host: {time}. The verdict counts from the first task of a step to that of the next, without steps that the profiler slowed down.") : t("Whole capture: {time}");
  return (
    <>
      <p class="headline" data-testid="mean-step"><b>{auto(step.us, "us")}</b><span>{name} · {three(step.us)} us</span></p>
      {step.differs && average !== null && auto(average, "us") !== auto(step.us, "us") && <p class="hint" data-testid="mean-of-marks">{marks.replace("{time}", auto(average, "us"))}</p>}
    </>
  );
}

export function View({ api }: ViewProps): JSX.Element {
  const { span } = selection.value;
  const load = useLoad(JSON.stringify(api.capture), (options) => api.get<Overview>("overview", {}, options));
  const step = param("step");
  return (
    <Frame name="overview" ready={!load.busy}>
      <Await load={load} remedy="overview" tall>
        {(data) => {
          const execution = data.execution?.rows ?? [];
          // As the bars below: parts that add up to the step. Rows of the table may lie beside each other.
          const parts = (data.steps?.categories ?? [])
            .map((name, at) => ({ name, value: data.steps!.rows.reduce((sum, row) => sum + row.values[at]!, 0) / data.steps!.rows.length }))
            .filter(({ value }) => value > 0);
          const categories = data.steps?.categories ?? [];
          const stacked = categories.map((name, at) => ({ name, at })).filter(({ at }) => data.steps!.rows.some((row) => (row.values[at] ?? 0) > 0));
          const median = data.steps?.median_us ?? null;
          const mad = data.steps?.mad_us ?? 0;
          return (
            <div class="stack">
              {data.headline.en !== "" && <p class="table-note block" data-testid="overview-headline">{inLanguage(data.headline)}</p>}
              {span?.simulated && <p class="table-note block" data-testid="overview-simulated">{t("recorded on the simulated NPU: what ran and how long it took is real; modelled, not measured, are")} {(span.modelled.length ? span.modelled : ["counters of cores and caches"]).map((one) => t(one)).join(t(", "))}</p>}
              {data.notes.map((note) => <p key={note} class="table-note block">{t(note)}</p>)}
              <div class="overview-top">
                {execution.length > 0 && (
                  <Card title={t("Execution Summary")} testid="table-execution" class="execution">
                    <MeanStep data={data} />
                    <table class="plain">
                      <thead><tr>{data.execution!.columns.map((name, at) => <th key={name} scope="col" class={at ? "number" : ""}>{name}</th>)}</tr></thead>
                      <tbody>
                        {execution.map(([name, value, share]) => (
                          <tr key={name}>
                            <td>{name !== "Average Step Time" && <i class="swatch" style={{ background: colourOf(name) }} />} {name}</td>
                            <td class="number">{three(value)}</td>
                            <td class="number">{share === null ? "" : share.toFixed(2)}</td>
                          </tr>
                        ))}
                      </tbody>
                    </table>
                  </Card>
                )}
                {parts.length > 0 && (
                  <Pie pie={{ key: "execution", title: t("Percentage (%)"), total: 0, items: parts, other: 0 }} />
                )}
              </div>
              {data.steps && data.steps.rows.length > 0 && (
                <Bars
                  id="steps"
                  title={t("Step Time Breakdown")}
                  axis={t("Step")}
                  series={stacked.map(({ name }) => name)}
                  bars={data.steps.rows.map((row) => ({ label: String(row.step), values: stacked.map(({ at }) => row.values[at] ?? 0), ...(row.slow ? { marked: t("slow step") } : {}) }))}
                  {...(median !== null && data.steps.rows.length > 2 ? { band: { low: median - mad, high: median + mad, label: `${t("median")} ± MAD ${timeText(median)} ± ${timeText(mad)}` } } : {})}
                  picked={step}
                  onPick={(bar) => setParams({ step: step === bar.label ? null : bar.label })}
                />
              )}
              {data.findings.length > 0 && (
                <Card title={t("Top findings")} testid="top-findings" tools={<button type="button" class="button quiet" onClick={() => openView("findings")}>{t("All findings")}</button>}>
                  <ul class="findings">{data.findings.map((finding, at) => <FindingItem key={at} finding={finding} />)}</ul>
                </Card>
              )}
              <div class="grid2">
                <Facts title={t("Configuration")} facts={data.configuration} testid="configuration" />
                <Facts title={t("Device Summary")} facts={data.device_summary} testid="device-summary" />
                <Facts title={t("GPU Summary")} facts={data.gpu_summary} testid="gpu-summary" />
              </div>
            </div>
          );
        }}
      </Await>
    </Frame>
  );
}
