// SPDX-License-Identifier: Apache-2.0
// Title of the view, the capture it shows, and the switches of the page.

import type { JSX } from "preact";
import { helpOpen } from "./help";
import { dark, language, theme, units } from "./settings";
import { diffSide } from "./panel";
import { linkHere, lostOf, news, openView, place, runs, selection, setParams, showsAllRanks, view, views } from "./state";
import { copyText, IconButton, say } from "./ui/controls";
import { Icon } from "./ui/icons";
import { inLanguage, t } from "./words";

/** Every picture of a simulated device says so. */
function Simulated({ modelled }: { modelled: readonly string[] }): JSX.Element {
  const modelledText = modelled.length ? `${t("modelled")}${t(": ")}${modelled.map((one) => t(one)).join(t(", "))}` : "";
  return <span class="tag simulated" data-testid="simulated" title={`${modelledText ? `${modelledText}. ` : ""}${t("All other times are measured.")}`}>{t("simulated NPU")}{modelledText && ` · ${t("partly modelled")}`}</span>;
}

/** Figures of every view are of what could be read; the verdict says it in its answer. */
function Incomplete(): JSX.Element | null {
  const lost = lostOf(selection.value.span);
  return lost && <button type="button" class="tag partial" title={`${inLanguage(lost)} · ${t("Details")}: Files`} data-testid="header-partial" onClick={() => openView("files")}>{t("partial")}</button>;
}

/** New steps and ranks are in the data already; the pill says so and leaves the window, the selection and the scrolling alone. */
function Live(): JSX.Element | null {
  const found = news.value;
  if (!found) return null;
  const parts = [found.steps && `${found.steps} ${t(found.steps === 1 ? "new step" : "new steps")}`, found.ranks && `${found.ranks} ${t(found.ranks === 1 ? "new rank" : "new ranks")}`].filter(Boolean);
  return (
    <span role="status">
      <button type="button" class="chip live" data-testid="live" title={t("Close")} onClick={() => { news.value = null; }}>
        <i class="dot" aria-hidden="true" /> {parts.join(t(", "))} <Icon name="close" />
      </button>
    </span>
  );
}

/** Both captures of a comparison, by what tells them apart. */
function Compared(): JSX.Element {
  const [a, b] = [diffSide("a"), diffSide("b")];
  const name = (one: typeof a): string => (a.run !== b.run ? one.run?.name : a.worker !== b.worker ? `${one.run?.name} / ${one.worker?.name}` : `${one.worker?.name} / ${one.span?.name}`) ?? "";
  const text = `${name(a)} → ${name(b)}`;
  return <span class="crumbs"><span class="clip both" title={text}>{text}</span></span>;
}

export function Header(): JSX.Element {
  const slug = view.value;
  const title = slug === "diff" ? "Diff" : (views.value.find((one) => one.slug === slug)?.name ?? slug.charAt(0).toUpperCase() + slug.slice(1));
  const { run, worker, span } = selection.value;
  const step = place.value.params["step"];
  const many = (runs.value?.runs.length ?? 0) > 0;
  return (
    <header class="top">
      <h1>{title}</h1>
      {many && slug === "diff" && <Compared />}
      {many && slug !== "diff" && run && (
        <span class="crumbs">
          <span class="clip" title={run.name}>{run.name}</span>
          {worker && <span class="clip" title={showsAllRanks.value ? t("all ranks") : worker.name}>{showsAllRanks.value ? t("all ranks") : worker.name}</span>}
          {span && (worker?.spans.length ?? 0) > 1 && <span class="clip" title={span.name}>{span.name}</span>}
        </span>
      )}
      {span?.simulated && slug !== "diff" && <Simulated modelled={span.modelled} />}
      {slug !== "diff" && slug !== "verdict" && <Incomplete />}
      {step !== undefined && slug !== "diff" && (
        <button type="button" class="chip" title={t("All steps")} onClick={() => setParams({ step: null })}>
          {t("Step")} {step} <Icon name="close" />
        </button>
      )}
      <Live />
      <span class="spring" />
      <label class="mini">
        <span class="unseen">{t("Units")}</span>
        <select title={t("Units")} value={units.value} data-testid="select-units" onChange={(event) => { units.value = event.currentTarget.value as "heading" | "auto"; }}>
          <option value="heading">us · ms · KB</option>
          <option value="auto">{t("Automatic")}</option>
        </select>
      </label>
      <label class="mini">
        <span class="unseen">{t("Language")}</span>
        <select title={t("Language")} value={language.value} data-testid="select-language" onChange={(event) => { language.value = event.currentTarget.value as "en" | "zh"; }}>
          <option value="en">English</option>
          <option value="zh">简体中文</option>
        </select>
      </label>
      <label class="mini">
        <span class="unseen">{t("Theme")}</span>
        <select title={t("Theme")} value={theme.value} data-testid="select-theme" onChange={(event) => { theme.value = event.currentTarget.value as typeof theme.value; }}>
          <option value="system">{t("System")}</option>
          <option value="light">{t("Light")}</option>
          <option value="dark">{t("Dark")}</option>
        </select>
      </label>
      <IconButton icon={dark.value ? "sun" : "moon"} label={dark.value ? t("Light") : t("Dark")} testid="btn-theme" onClick={() => { theme.value = dark.value ? "light" : "dark"; }} />
      <IconButton icon="link" label={`${t("Copy link")} (y)`} testid="btn-link" onClick={() => void copyText(linkHere()).then(() => say(t("Link copied")))} />
      <IconButton icon="help" label={`${t("Keyboard")} (?)`} testid="btn-help" onClick={() => { helpOpen.value = true; }} />
    </header>
  );
}
