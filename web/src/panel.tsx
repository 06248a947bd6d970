// SPDX-License-Identifier: Apache-2.0
// The control panel: Runs, Views, Workers, Spans; or the two captures of a comparison.

import type { JSX } from "preact";
import { address } from "./api";
import { panelOpen, panelWidth } from "./settings";
import { openCapture, openView, place, refresh, type RunEntry, runs, selection, setParams, showsAllRanks, type SpanEntry, view, viewCounts, views } from "./state";
import { IconButton, Select } from "./ui/controls";
import { Icon, VIEW_ICONS } from "./ui/icons";
import { stageText } from "./ui/messages";
import { inLanguage, t } from "./words";

const named = (all: readonly { name: string }[]): { value: string; label: string }[] => all.map((one) => ({ value: one.name, label: one.name }));

function Brand(): JSX.Element {
  return (
    <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="#1f4fd8" />
      <path d="M6 22h6v-6h6v-6h8" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round" stroke-linejoin="round" />
      <circle cx="26" cy="10" r="2.6" fill="#ffb454" />
    </svg>
  );
}

/** The folded panel: the views as icons, so that a wide picture costs no way to the others. */
export function Rail(): JSX.Element {
  return (
    <aside class="rail" aria-label={t("Control panel")}>
      <Brand />
      <IconButton icon="right" label={t("Show panel")} testid="btn-unfold" onClick={() => { panelOpen.value = true; }} />
      <nav class="rail-views" aria-label="Views">
        {views.value.map((one) => (
          <IconButton key={one.slug} icon={VIEW_ICONS[one.slug] ?? "menu"} label={one.name} testid={`rail-${one.slug}`} current={one.slug === view.value} onClick={() => openView(one.slug)} />
        ))}
      </nav>
    </aside>
  );
}

export function Panel(): JSX.Element {
  const diff = view.value === "diff";
  return (
    <aside class="panel" aria-label={t("Control panel")}>
      <div class="brand">
        <Brand />
        <strong>stepscope</strong>
        <span class="spring" />
        <IconButton icon="refresh" label={t("Rescan")} testid="btn-rescan" onClick={() => void refresh(true)} />
        <IconButton icon="left" label={t("Hide panel")} onClick={() => { panelOpen.value = false; }} />
      </div>
      <div class="tabs" role="tablist" aria-label="Mode">
        <button type="button" role="tab" id="tab-normal" aria-selected={!diff} aria-controls="panel-body" data-testid="tab-normal" onClick={() => diff && openView(views.peek()[0]?.slug ?? "overview")}>NORMAL</button>
        <button type="button" role="tab" id="tab-diff" aria-selected={diff} aria-controls="panel-body" data-testid="tab-diff" onClick={() => !diff && openView("diff")}>DIFF</button>
      </div>
      <div id="panel-body" role="tabpanel" aria-labelledby={diff ? "tab-diff" : "tab-normal"} class="panel-body">
        {diff ? <DiffBoxes /> : <NormalBoxes />}
      </div>
      <PanelGrip />
    </aside>
  );
}

const countText = (slug: string): string => `${viewCounts.value[slug]} ${t(slug === "verdict" ? "findings" : "ranks")}`;

function NormalBoxes(): JSX.Element {
  const { run, worker, span } = selection.value;
  const list = runs.value?.runs ?? [];
  const available = views.value;
  return (
    <>
      <Select wide label="Runs" testid="select-runs" value={run?.name ?? ""} options={named(list)} onChange={(value) => openCapture({ run: value })} />
      <Select
        wide
        label="Views"
        testid="select-views"
        value={view.value}
        size={Math.max(4, available.length)}
        options={available.map((one) => ({ value: one.slug, label: one.name, ...(viewCounts.value[one.slug] === undefined ? {} : { count: viewCounts.value[one.slug]!, about: countText(one.slug) }) }))}
        onChange={(value) => openView(value)}
      />
      {showsAllRanks.value ? (
        <Select wide label="Workers" testid="select-workers" value="All" options={[{ value: "All", label: "All" }]} onChange={() => undefined} />
      ) : (
        <Select wide label="Workers" testid="select-workers" value={worker?.name ?? ""} options={named(run?.workers ?? [])} onChange={(value) => openCapture({ worker: value })} />
      )}
      {(worker?.spans.length ?? 0) > 1 && (
        <Select wide label="Spans" testid="select-spans" value={span?.name ?? ""} options={named(worker?.spans ?? [])} onChange={(value) => openCapture({ ...(worker ? { worker: worker.name } : {}), span: value })} />
      )}
      {span && run && <State span={span} run={run} />}
    </>
  );
}

/** The folder that holds all of these. */
function common(paths: readonly string[]): string {
  const parts = paths.map((one) => one.split("/"));
  const first = parts[0] ?? [];
  const differ = first.findIndex((part, at) => parts.some((one) => one[at] !== part));
  return first.slice(0, differ < 0 ? first.length : differ).join("/");
}

function State({ span, run }: { span: SpanEntry; run: RunEntry }): JSX.Element {
  const all = showsAllRanks.value && run.workers.length > 1;
  const path = all ? common(run.workers.flatMap((one) => one.spans.map((part) => part.path))) : span.path;
  const percent = Math.round(span.progress * 100);
  const text = span.state === "loading" ? stageText(span) : span.changing ? t("still being written") : t(span.state === "found" ? "not read yet" : span.state.replace("_", " "));
  return (
    <div class="capture-state" data-state={span.state}>
      <p>
        <i class="dot" aria-hidden="true" />
        <span>{text}</span>
        {span.device && <span class="tag">{span.device.toUpperCase()}</span>}
        {all ? <span class="tag">{run.workers.length} {t("ranks")}</span> : span.rank !== null && <span class="tag">rank {span.rank}</span>}
      </p>
      {span.state === "loading" && <progress max={100} value={percent} aria-label={t("Reading the capture")} />}
      {span.quality && span.quality.headline.en !== "" && <p class="table-note block" role="note" data-testid="headline">{inLanguage(span.quality.headline)}</p>}
      {span.quality && span.quality.warnings > 0 && (
        <button type="button" class="button quiet warn" data-testid="quality" onClick={() => openView("files")}>
          <Icon name="alert" /> {inLanguage(span.quality.summary)}
        </button>
      )}
      <p class="path" title={path}>{path}</p>
      <a class="button quiet report" href={address("report", { run: run.name })} download="report.html" data-testid="btn-report" title={t("The whole run as one HTML file that opens offline")}>
        <Icon name="download" /> {t("HTML report")}
      </a>
    </div>
  );
}

/** One side of the comparison; prefilled with what NORMAL shows. */
function Side({ letter, label }: { letter: "a" | "b"; label: string }): JSX.Element {
  const side = diffSide(letter);
  const { run, worker, span } = side;
  const set = (choice: { run?: string; worker?: string; span?: string }): void =>
    setParams({
      [`${letter}run`]: choice.run ?? run?.name ?? null,
      [`${letter}worker`]: choice.run !== undefined ? null : (choice.worker ?? worker?.name ?? null),
      [`${letter}span`]: choice.run !== undefined || choice.worker !== undefined ? null : (choice.span ?? span?.name ?? null),
      path: null,
    });
  return (
    <fieldset class="side">
      <legend>{label}</legend>
      <Select wide label="Runs" testid={`select-runs-${letter}`} value={run?.name ?? ""} options={named(runs.value?.runs ?? [])} onChange={(value) => set({ run: value })} />
      <Select wide label="Workers" testid={`select-workers-${letter}`} value={worker?.name ?? ""} options={named(run?.workers ?? [])} onChange={(value) => set({ worker: value })} />
      {(worker?.spans.length ?? 0) > 1 && <Select wide label="Spans" testid={`select-spans-${letter}`} value={span?.name ?? ""} options={named(worker?.spans ?? [])} onChange={(value) => set({ span: value })} />}
    </fieldset>
  );
}

function DiffBoxes(): JSX.Element {
  return (
    <>
      <Side letter="a" label={t("Baseline")} />
      <button
        type="button"
        class="button"
        onClick={() => {
          const [a, b] = [diffSide("a"), diffSide("b")];
          setParams({ arun: b.run?.name ?? null, aworker: b.worker?.name ?? null, aspan: b.span?.name ?? null, brun: a.run?.name ?? null, bworker: a.worker?.name ?? null, bspan: a.span?.name ?? null, path: null });
        }}
      >
        <Icon name="swap" /> {t("Swap")}
      </button>
      <Side letter="b" label={t("Experimental")} />
    </>
  );
}

export function diffSide(letter: "a" | "b"): { run: RunEntry | null; worker: { name: string; spans: SpanEntry[] } | null; span: SpanEntry | null } {
  const { params } = place.value;
  const list = runs.value?.runs ?? [];
  const chosen = selection.value;
  const wanted = params[`${letter}run`];
  // The second side starts with the next run, worker or span, so that the first picture already compares something.
  const at = list.findIndex((one) => one === chosen.run);
  const siblings = chosen.run?.workers ?? [];
  const next = siblings[siblings.findIndex((one) => one === chosen.worker) + 1];
  const fallbackRun = letter === "a" || next ? chosen.run : (list[at + 1] ?? chosen.run);
  const run = list.find((one) => one.name === wanted) ?? fallbackRun;
  const workers = run?.workers ?? [];
  const same = wanted === undefined || run === chosen.run;
  const other = letter === "b" ? diffSide("a") : null;
  const alike = other && other.run !== run ? workers.find((one) => one.name === other.worker?.name) : undefined;
  const fallbackWorker = alike ? alike : same && run === chosen.run ? (letter === "b" && next ? next : chosen.worker) : (workers[0] ?? null);
  const worker = workers.find((one) => one.name === params[`${letter}worker`]) ?? (workers.includes(fallbackWorker!) ? fallbackWorker : (workers[0] ?? null));
  const spans = worker?.spans ?? [];
  const span = spans.find((one) => one.name === params[`${letter}span`]) ?? spans[0] ?? null;
  return { run, worker, span };
}

function PanelGrip(): JSX.Element {
  return (
    <div
      class="panel-grip"
      role="separator"
      aria-orientation="vertical"
      aria-label={t("Width")}
      aria-valuenow={panelWidth.value}
      aria-valuemin={200}
      aria-valuemax={480}
      tabIndex={0}
      onKeyDown={(event) => {
        const by = event.key === "ArrowLeft" ? -16 : event.key === "ArrowRight" ? 16 : 0;
        if (!by) return;
        event.preventDefault();
        panelWidth.value = Math.max(200, Math.min(480, panelWidth.value + by));
      }}
      onPointerDown={(event) => {
        const grip = event.currentTarget;
        const [startX, width] = [event.clientX, panelWidth.value];
        grip.setPointerCapture(event.pointerId);
        const move = (next: PointerEvent): void => { panelWidth.value = Math.max(200, Math.min(480, width + next.clientX - startX)); };
        const end = (): void => {
          grip.removeEventListener("pointermove", move);
          grip.removeEventListener("pointerup", end);
        };
        grip.addEventListener("pointermove", move);
        grip.addEventListener("pointerup", end);
      }}
    />
  );
}
