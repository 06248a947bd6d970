// SPDX-License-Identifier: Apache-2.0
// Loading, missing and failed: always with words, a number or a next step.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ApiError, Progress } from "../api";
import { inLanguage, t } from "../words";
import { cancelReading, lostOf, openView, selection } from "../state";
import { Snippet } from "./controls";
import { Icon } from "./icons";
import type { Loaded } from "./load";

interface Remedy {
  readonly file: string;
  readonly code: string;
}

const NPU = "torch_npu.profiler";

/** For each view, the missing file and the switch that makes it (docs/reference/viewer.md 9). */
export const REMEDIES: Readonly<Record<string, Remedy>> = {
  overview: { file: "step_trace_time.csv", code: `schedule=${NPU}.schedule(wait=1, warmup=1, active=3)\n...\nprof.step()  # once per training step` },
  operator: { file: "operator_details.csv", code: `activities=[${NPU}.ProfilerActivity.CPU, ${NPU}.ProfilerActivity.NPU]` },
  kernel: { file: "kernel_details.csv", code: `activities=[${NPU}.ProfilerActivity.NPU]\n# counters of the cores:\nexperimental_config=${NPU}._ExperimentalConfig(\n    profiler_level=${NPU}.ProfilerLevel.Level1,\n    aic_metrics=${NPU}.AiCMetrics.PipeUtilization)` },
  trace: { file: "trace_view.json", code: `on_trace_ready=${NPU}.tensorboard_trace_handler("./result")` },
  memory: { file: "memory_record.csv, operator_memory.csv, npu_module_mem.csv", code: "profile_memory=True" },
  distributed: { file: "step_trace_time.csv, communication.json", code: `# a job of two or more devices, and\nexperimental_config=${NPU}._ExperimentalConfig(profiler_level=${NPU}.ProfilerLevel.Level1)` },
  communication: { file: "communication.json, communication_matrix.json", code: `# a job of two or more devices, and\nexperimental_config=${NPU}._ExperimentalConfig(profiler_level=${NPU}.ProfilerLevel.Level1)` },
  module: { file: "nn.Module slices of the trace", code: "with_modules=True  # or with_stack=True" },
  flame: { file: "call stacks", code: "with_stack=True" },
  stack: { file: "Call Stack column of operator_details.csv", code: "with_stack=True" },
  shapes: { file: "Input Shapes column of operator_details.csv", code: "record_shapes=True" },
};

/** The same for captures of torch's own profiler. */
const OTHER_REMEDIES: Readonly<Record<string, Remedy>> = {
  overview: { file: "ProfilerStep slices of the trace", code: "schedule=torch.profiler.schedule(wait=1, warmup=1, active=3)\n...\nprof.step()  # once per training step" },
  operator: { file: "cpu_op slices of the trace", code: "activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]" },
  kernel: { file: "kernel slices of the trace", code: "activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]" },
  trace: { file: "*.pt.trace.json", code: "on_trace_ready=torch.profiler.tensorboard_trace_handler(\"./result\")" },
  memory: { file: "[memory] events of the trace", code: "profile_memory=True" },
  distributed: { file: "traces of all ranks", code: "# a job of two or more devices; one trace of each rank in one folder" },
  communication: { file: "figures of links", code: "# recorded on NPUs only; times of collectives are in Distributed" },
  stack: { file: "call stacks of the trace", code: "with_stack=True" },
  shapes: { file: "Input Dims of the trace", code: "record_shapes=True" },
};

function remedyFor(view: string): Remedy | undefined {
  const device = selection.value.span?.device;
  return (device && device !== "npu" ? OTHER_REMEDIES[view] : undefined) ?? REMEDIES[view];
}

export function Empty(props: { title: string; detail?: string; hint?: string; remedy?: string; children?: ComponentChildren }): JSX.Element {
  const remedy = props.remedy ? remedyFor(props.remedy) : undefined;
  return (
    <div class="empty" data-testid="empty">
      <h2>{props.title}</h2>
      {props.detail && <p>{props.detail}</p>}
      {props.hint && <p class="hint">{props.hint}</p>}
      {remedy && (
        <>
          <p>
            {t("The view needs")} <code>{t(remedy.file)}</code>
          </p>
          <h3>{t("How to collect it")}</h3>
          <Snippet text={remedy.code} />
        </>
      )}
      {props.children}
    </div>
  );
}

/** Some rows or files could not be used: how many, and where the list of them is. */
export function Partial(): JSX.Element | null {
  const lost = lostOf(selection.value.span);
  return lost && (
    <p class="partial" data-testid="partial">
      <span class="tag partial">{t("partial")}</span> {inLanguage(lost)} <button type="button" class="link" onClick={() => openView("files")}>{t("Details")}</button>
    </p>
  );
}

export function Problem({ problem, again, remedy }: { problem: ApiError; again?: () => void; remedy?: string }): JSX.Element {
  if (problem.code === "missing_data") {
    return <Empty title={t(problem.message)} detail={t(problem.detail)} hint={t(problem.hint)} {...(remedy ? { remedy } : {})} />;
  }
  return (
    <div class="problem" role="alert">
      <h2>
        <Icon name="alert" /> {problem.code === "unreadable" && problem.file ? `${t("unreadable")}${t(": ")}${problem.file}` : t(problem.message)}
      </h2>
      {problem.code === "unreadable" && problem.file && <p><strong>{t(problem.message)}</strong></p>}
      {problem.detail && <p>{t(problem.detail)}</p>}
      {problem.file && problem.code !== "unreadable" && (
        <p>
          {t("File")}: <code>{problem.file}</code>
        </p>
      )}
      {problem.hint && (
        <p>
          <strong>{t("What to do")}:</strong> {t(problem.hint)}
        </p>
      )}
      <div class="row">
        {again && (
          <button type="button" class="button" onClick={again}>
            {t("Try again")}
          </button>
        )}
        {problem.id && (
          <details>
            <summary>{t("Details")}</summary>
            <code>
              {problem.code} · {problem.status} · {problem.id}
            </code>
          </details>
        )}
      </div>
    </div>
  );
}

function useSeconds(): number {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const timer = window.setInterval(() => setSeconds((now) => now + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return seconds;
}

/** Which file, how many of the bytes of all files; or the stage after reading. */
export function stageText({ progress, stage, read_bytes = 0, total_bytes = 0 }: Progress): string {
  const file = /^reading (.*)$/.exec(stage)?.[1];
  if (file === undefined) return `${t(stage || "Reading the capture")} · ${Math.round(progress * 100)} %`;
  const [unit, name] = total_bytes < 1e6 ? [1e3, "KB"] : [1e6, "MB"];
  const digits = total_bytes < 10 * unit ? 1 : 0;
  const amount = (bytes: number): string => (bytes / unit).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return `${t("Reading")} ${file.split("/").at(-1)}${total_bytes ? ` · ${amount(read_bytes)} ${t("of")} ${amount(total_bytes)} ${name}` : ""}`;
}

export function Skeleton({ progress, tall }: { progress?: Loaded<unknown>["progress"]; tall?: boolean }): JSX.Element {
  const share = progress ? Math.round(progress.progress * 100) : null;
  const seconds = useSeconds();
  return (
    <div class={`skeleton${tall ? " tall" : ""}`} role="status">
      <div class="skeleton-bars" aria-hidden="true">
        <i />
        <i />
        <i />
        <i />
      </div>
      <p>
        {progress ? stageText(progress) : `${t("Loading")} …`}
        {seconds > 0 && ` · ${seconds} s`}
      </p>
      {share !== null && <progress max={100} value={share} aria-label={t("Reading the capture")} />}
      {progress && <button type="button" class="button" data-testid="btn-cancel" onClick={() => void cancelReading()}>{t("Cancel")}</button>}
    </div>
  );
}

/** Skeleton, problem, or the data. Keeps the last data on screen while new data is on its way. */
export function Await<T>(props: { load: Loaded<T>; remedy?: string; tall?: boolean; quiet?: boolean; children: (data: T) => ComponentChildren }): JSX.Element {
  const { data, problem, progress } = props.load;
  if (props.quiet && (problem || data === null)) return <></>; // said once, by another part of the view
  if (problem) return <Problem problem={problem} again={props.load.again} {...(props.remedy ? { remedy: props.remedy } : {})} />;
  if (data === null || data === undefined) return <Skeleton progress={progress} {...(props.tall ? { tall: true } : {})} />;
  return <>{props.children(data)}</>;
}
