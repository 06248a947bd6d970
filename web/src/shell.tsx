// SPDX-License-Identifier: Apache-2.0
// The frame around the views: control panel, header, keys, and what stands in place of a view that cannot be shown.

import type { ComponentType, JSX } from "preact";
import { useEffect, useErrorBoundary, useState } from "preact/hooks";
import { call } from "./api";
import { Header } from "./header";
import { Help, helpOpen } from "./help";
import { Panel, Rail } from "./panel";
import { panelOpen, panelWidth } from "./settings";
import { api, linkHere, openView, refresh, runs, runsProblem, selection, setParams, type SpanEntry, view, views } from "./state";
import { copyText, Notices, say, Snippet } from "./ui/controls";
import { Icon } from "./ui/icons";
import { Empty, Problem, Skeleton } from "./ui/messages";
import { ApiError } from "./api";
import type { ViewProps } from "./views/view";
import { t } from "./words";

type Loader = () => Promise<{ View: ComponentType<ViewProps> }>;

const LOADERS: Readonly<Record<string, Loader>> = {
  verdict: () => import("./views/verdict"),
  cluster: () => import("./views/cluster"),
  overview: () => import("./views/overview"),
  operator: () => import("./views/operator"),
  kernel: () => import("./views/kernel"),
  trace: () => import("./views/trace"),
  memory: () => import("./views/memory"),
  distributed: () => import("./views/distributed"),
  communication: () => import("./views/communication"),
  module: () => import("./views/module"),
  flame: () => import("./views/flame"),
  source: () => import("./views/source"),
  roofline: () => import("./views/roofline"),
  findings: () => import("./views/findings"),
  files: () => import("./views/files"),
  diff: () => import("./views/diff"),
};

const NOT_COLLECTED: Readonly<Record<string, string>> = {
  kernel: "No device tasks in this capture", memory: "No memory events in this capture", module: "No modules in this capture",
  communication: "No figures of links in this capture", flame: "No call stacks in this capture",
};
const RAIL = 48; // px of the folded panel

export function Shell(): JSX.Element {
  useEffect(() => {
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  const open = panelOpen.value;
  return (
    <div class={`shell${open ? "" : " folded"}`} style={{ gridTemplateColumns: open ? `${panelWidth.value}px minmax(0, 1fr)` : `${RAIL}px minmax(0, 1fr)` }}>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>{t("Skip to the view")}</a>
      {open ? <Panel /> : <Rail />}
      <div class="stage">
        <Header />
        <main id="main" tabIndex={-1} class="main" data-view={view.value}>
          <Stage />
        </main>
      </div>
      <Help />
      <Notices />
    </div>
  );
}

/** Keys of the whole page; fields and dialogs keep theirs. */
function onKey(event: KeyboardEvent): void {
  const target = event.target as HTMLElement | null;
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (target && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName))) return;
  if (event.key >= "0" && event.key <= "9") {
    // Verdict is 0, so that the other views keep their numbers.
    const numbered = views.peek().filter(({ slug }) => slug !== "verdict");
    const wanted = event.key === "0" ? views.peek().find(({ slug }) => slug === "verdict") : numbered[Number(event.key) - 1];
    if (wanted) openView(wanted.slug);
  } else if (event.key === "?") helpOpen.value = !helpOpen.peek();
  else if (event.key === "y") void copyText(linkHere()).then(() => say(t("Link copied")));
  else if (event.key === "/" && view.peek() !== "trace") {
    const field = document.querySelector<HTMLInputElement>("[data-search]");
    if (!field) return;
    field.focus();
  } else if (event.key === "Escape" && helpOpen.peek()) helpOpen.value = false;
  else return;
  event.preventDefault();
}

function Stage(): JSX.Element {
  const list = runs.value;
  if (!list) return runsProblem.value ? <Problem problem={runsProblem.value} again={() => void refresh()} /> : <Skeleton tall />;
  if (!list.runs.length) return <NoRuns />;
  const { span, unknown } = selection.value;
  const now = api.value;
  if (!span || !now) return <NoRuns />;
  return (
    <>
      {runsProblem.value && (
        <p class="banner" role="alert"><Icon name="alert" /> {t(runsProblem.value.message)}{t(". ")}{t(runsProblem.value.hint)}</p>
      )}
      {unknown.length > 0 && (
        <p class="banner" role="alert" data-testid="unknown">
          <Icon name="alert" /> {unknown.join(", ")}: {t("not in this folder any more, or never was; showing the first one instead")}
          <button type="button" class="button quiet" onClick={() => setParams({ run: null, worker: null, span: null })}>{t("Close")}</button>
        </p>
      )}
      <Chosen span={span} />
    </>
  );
}

function Chosen({ span }: { span: SpanEntry }): JSX.Element {
  const slug = view.value;
  const now = api.value!;
  if (slug !== "diff") {
    if (span.state === "not_analysed") return <NotAnalysed span={span} />;
    if (span.state === "failed") {
      const error = new ApiError(415, { code: "unreadable", title: t("This capture cannot be read"), ...(span.error ?? {}) });
      return <Problem problem={error} again={() => void startLoading()} />;
    }
    const listed = views.value.some((one) => one.slug === slug);
    if (!listed && span.state === "ready" && (LOADERS[slug] === undefined || !["distributed", "cluster"].includes(slug))) {
      return (
        <Empty title={LOADERS[slug] ? t(NOT_COLLECTED[slug] ?? "This view has no data here") : t("Unknown view “{name}”", { name: slug })} hint={t("Switch to another view or capture on the left.")} remedy={slug}>
          <div class="row">
            {views.value.map((one) => (
              <button key={one.slug} type="button" class="button" onClick={() => openView(one.slug)}>{one.name}</button>
            ))}
          </div>
        </Empty>
      );
    }
  }
  return <LazyView key={slug} slug={slug} api={now} device={span.device ?? ""} />;
}

async function startLoading(): Promise<void> {
  const { run, worker, span } = selection.peek();
  try {
    await call("load", {}, { run: run?.name, worker: worker?.name, span: span?.name });
  } catch (problem) {
    if (problem instanceof ApiError) say(t(problem.message));
    else throw problem;
  }
  await refresh();
}

function NotAnalysed({ span }: { span: SpanEntry }): JSX.Element {
  return (
    <Empty title={t("Not analysed yet")} detail={span.path}>
      <button type="button" class="button primary" onClick={() => void startLoading()}>{t("Analyse now")}</button>
      {span.command && (
        <>
          <p>{t("or type")}</p>
          <Snippet text={span.command} />
        </>
      )}
    </Empty>
  );
}

function NoRuns(): JSX.Element {
  const list = runs.value;
  const empty = list?.empty;
  return (
    <Empty title={empty?.title ?? t("Nothing to show yet")} {...(empty?.detail ? { detail: empty.detail } : {})} {...(empty?.hint ? { hint: empty.hint } : {})}>
      <p>
        {t("Folders searched")}: {(list?.folders ?? []).map((folder) => <code key={folder}>{folder} </code>)}
      </p>
      {empty?.layouts && (
        <>
          <h3>{t("Layouts that are found")}</h3>
          <ul class="layouts">
            {empty.layouts.map((layout) => <li key={layout}><code>{layout}</code></li>)}
          </ul>
        </>
      )}
      <Snippet text={'with torch_npu.profiler.profile(\n        on_trace_ready=torch_npu.profiler.tensorboard_trace_handler("./result")) as prof:\n    for batch in loader:\n        train(batch)\n        prof.step()'} />
      <button type="button" class="button" onClick={() => void refresh(true)}>{t("Rescan")}</button>
    </Empty>
  );
}

function LazyView(props: { slug: string } & ViewProps): JSX.Element {
  const [part, setPart] = useState<{ View: ComponentType<ViewProps> } | null>(null);
  const [problem, setProblem] = useState<ApiError | null>(null);
  useEffect(() => {
    let gone = false;
    const load = LOADERS[props.slug];
    if (!load) setProblem(new ApiError(404, { title: t("Unknown view “{name}”", { name: props.slug }) }));
    else {
      load().then(
        (module) => { if (!gone) setPart(module); },
        (reason: unknown) => { if (!gone) setProblem(new ApiError(0, { title: "Part of the page did not load", detail: String(reason), hint: "Reload the page." })); },
      );
    }
    return () => { gone = true; };
  }, [props.slug]);
  if (problem) return <Problem problem={problem} />;
  if (!part) return <Skeleton tall />;
  return <Contained View={part.View} api={props.api} device={props.device} />;
}

/** A view that breaks takes nothing else down. */
function Contained({ View, ...props }: { View: ComponentType<ViewProps> } & ViewProps): JSX.Element {
  const [broken, again] = useErrorBoundary((problem) => console.error(problem));
  const shown = JSON.stringify(props.api.capture);
  useEffect(() => { if (broken !== undefined) again(); }, [shown]);
  if (broken === undefined) return <View {...props} />;
  const error = { code: "page", title: t("This view failed"), detail: String(broken), hint: t("The other views still work. If it stays, reload the page and report this text.") };
  return <Problem problem={new ApiError(0, error)} again={again} />;
}
