// SPDX-License-Identifier: Apache-2.0
// The tool bar: processes, flow events, ranks, search, export.

import { button, type Child, h } from "./dom";
import { tracksOf } from "../canvas/layout";
import { whole } from "../numbers";
import { tracksOf as rangeTracks } from "./panel";
import type { SearchOptions, Session } from "../session";
import { t } from "../words";

export interface BarActions {
  setRanks(names: Set<string>): void;
  /** On the common clock of the run, or as at first. */
  realign(byClock: boolean): void;
  picture(): void;
}

export interface RankChoice {
  readonly name: string;
  readonly own: boolean;
  readonly shown: boolean;
}

export class Bar {
  readonly search: HTMLInputElement;
  private readonly count = h("output", { class: "trace-count", "data-testid": "trace-hits" });
  private readonly regex = toggle(".*", t("Regular expression"), () => this.find());
  private readonly exact = toggle("Aa", t("Match case"), () => this.find());
  private readonly word = toggle("W", t("Whole word"), () => this.find());
  private readonly raw = toggle("epoch", `epoch: ${t("Raw timestamps")}`, () => {
    this.session.timeline.rawTime = this.raw.getAttribute("aria-pressed") === "true";
    this.session.timeline.draw();
  });
  private readonly steps = h("span", { class: "trace-steps", role: "group", "aria-label": t("Step"), hidden: true });
  private readonly menus = new Map<string, HTMLDetailsElement>();
  private readonly stop = new AbortController();
  private timer = 0;

  constructor(readonly root: HTMLElement, private readonly session: Session, private readonly actions: BarActions) {
    this.search = h("input", {
      type: "search", class: "trace-search", placeholder: t("Search slices ( / )"), "aria-label": t("Search"), "data-testid": "trace-search",
      input: () => {
        clearTimeout(this.timer);
        this.timer = window.setTimeout(() => this.find(), 200);
      },
      keydown: (event: KeyboardEvent) => {
        if (event.key !== "Enter") return;
        clearTimeout(this.timer);
        void this.findNow().then(() => session.hit(event.shiftKey ? -1 : 1));
      },
    });
    const menu = (key: string, title: string, fill: () => Child[]): HTMLDetailsElement => {
      const body = h("div", { class: "trace-menu-body" });
      const details = h("details", { class: "trace-menu", toggle: () => {
        if (!details.open) return;
        for (const [other, one] of this.menus) if (other !== key) one.open = false;
        body.replaceChildren(...fill().filter((child): child is Node | string => !!child));
      } }, h("summary", { "data-testid": `trace-menu-${key}` }, t(title)), body);
      this.menus.set(key, details);
      return details;
    };
    const modes = h("span", { class: "trace-modes", role: "group", "aria-label": `${t("Select")} / ${t("Area")}` });
    const mode = (text: string, label: string, areas: boolean): HTMLButtonElement => button(t(text), t(label), () => {
      session.timeline.areas = areas;
      for (const one of modes.children) one.setAttribute("aria-pressed", String((one === modes.lastChild) === areas));
    }, { "aria-pressed": String(!areas), class: "trace-toggle", "data-testid": `trace-mode-${areas ? "area" : "select"}` });
    modes.append(
      mode("Select", "Drag moves the picture; click selects", false),
      mode("Area", "Drag marks an area and sums it up (Shift-drag does so always)", true));
    root.append(
      this.steps,
      menu("processes", "Processes", () => this.processes()),
      menu("flows", "Flow events", () => this.flows()),
      menu("ranks", "Ranks", () => this.ranks()),
      h("span", { class: "trace-find" }, this.search, this.regex, this.exact, this.word,
        button("‹", t("Previous hit (N)"), () => session.hit(-1)), button("›", t("Next hit (n)"), () => session.hit(1)), this.count),
      modes,
      h("span", { class: "trace-grow" }),
      this.raw,
      button("−", t("Zoom out (S)"), () => this.zoom(1.6)),
      button("+", t("Zoom in (W)"), () => this.zoom(1 / 1.6)),
      button("⤢", t("Whole capture (Ctrl+0)"), () => session.whole()),
      menu("export", "Export", () => this.exports()),
    );
    this.menus.get("export")!.querySelector("summary")!.setAttribute("data-testid", "btn-export");
    this.showRanks([]);
    document.addEventListener("pointerdown", (event) => {
      for (const one of this.menus.values()) if (one.open && !one.contains(event.target as Node)) one.open = false;
    }, { signal: this.stop.signal });
    root.addEventListener("keydown", (event) => {
      const open = [...this.menus.values()].find((one) => one.open);
      if (event.key !== "Escape" || !open) return;
      open.open = false;
      open.querySelector("summary")?.focus();
      event.stopPropagation();
    });
  }

  destroy(): void {
    this.stop.abort();
    clearTimeout(this.timer);
  }

  private stepsShown = "";

  /** The step in view between arrows to its neighbours; all of them while none has most of the window. */
  showStep(): void {
    const steps = this.session.scene.sources[0]?.meta.steps ?? [];
    const at = this.session.timeline.step;
    const key = `${steps.length} ${at}`;
    if (key === this.stepsShown) return;
    this.stepsShown = key;
    this.steps.hidden = !steps.length;
    if (!steps.length) return;
    const focused = [...this.steps.children].indexOf(document.activeElement!);
    const go = (to: number | null): void => this.session.goToStep(to === null ? null : Math.max(0, Math.min(steps.length - 1, to)));
    const text = at === null ? t("All steps") : `${t("Step")} ${steps[at]!.step}`;
    this.steps.replaceChildren(
      button("◂", t("Previous step"), () => go(at === null ? steps.length - 1 : at - 1), { disabled: at === 0 }),
      button(text, text, () => go(at === null || steps.length === 1 ? at : null), { "data-testid": "trace-step", title: at === null ? text : `${text} · ${t("All steps")}` }),
      button("▸", t("Next step"), () => go(at === null ? 0 : at + 1), { disabled: at === steps.length - 1 }));
    if (focused >= 0) (this.steps.children[focused] as HTMLElement).focus();
  }

  private zoom(factor: number): void {
    const { view } = this.session.timeline;
    view.keep();
    view.zoom(factor, (view.from + view.to) / 2);
    this.session.moved();
    this.session.timeline.draw();
  }

  private find(): void {
    void this.findNow();
  }

  async findNow(): Promise<void> {
    const before = this.session.result?.options;
    const now = this.options();
    if (before && (Object.keys(now) as (keyof SearchOptions)[]).every((key) => before[key] === now[key])) return;
    await this.session.search(now);
  }

  options(): SearchOptions {
    const on = (one: HTMLElement): boolean => one.getAttribute("aria-pressed") === "true";
    return { text: this.search.value, regex: on(this.regex), case: on(this.exact), word: on(this.word) };
  }

  setOptions(text: string, mode: string): void {
    this.search.value = text;
    for (const [one, letter] of [[this.regex, "r"], [this.exact, "c"], [this.word, "w"]] as const) one.setAttribute("aria-pressed", String(mode.includes(letter)));
  }

  get mode(): string {
    const { regex, case: exact, word } = this.options();
    return `${regex ? "r" : ""}${exact ? "c" : ""}${word ? "w" : ""}`;
  }

  showCount(): void {
    const { result } = this.session;
    this.count.value = result ? (result.count ? `${result.at < 0 ? "" : `${whole(result.at + 1)} / `}${whole(result.count)}` : t("Nothing found")) : "";
  }

  private processes(): Child[] {
    const { session } = this;
    const keys: string[] = [];
    const set = (hidden: Set<string>): void => {
      session.arrange({ hidden });
      this.reopen("processes");
    };
    const boxes = session.scene.sources.flatMap((source) => {
      const tracks = tracksOf(source);
      return source.meta.processes.filter((process) => tracks.has(process.id)).map((process) => {
        const key = `${source.number}.p${process.id}`;
        keys.push(key);
        const label = `${session.scene.sources.length > 1 ? `${source.label} · ` : ""}${process.name}${process.badge ? ` (${process.badge})` : ""}`;
        return check(label, !session.scene.choice.hidden.has(key), (on) => {
          const hidden = new Set(session.scene.choice.hidden);
          if (on) hidden.delete(key);
          else hidden.add(key);
          session.arrange({ hidden });
        });
      });
    });
    const kept = [...session.scene.choice.hidden].filter((key) => !key.includes(".p") || key.endsWith(".path"));
    return [
      h("div", { class: "trace-menu-row" },
        button(t("All"), t("All"), () => set(new Set(kept))),
        button(t("None"), t("None"), () => set(new Set([...kept, ...keys])))),
      ...boxes,
      kept.length ? button(`${t("Show hidden tracks")} (${kept.length})`, t("Show hidden tracks"), () =>
        set(new Set([...session.scene.choice.hidden].filter((key) => !kept.includes(key))))) : null,
    ];
  }

  private flows(): Child[] {
    const { session } = this;
    const counts = new Map<string, number>();
    for (const source of session.scene.sources) for (const { category, count } of source.meta.flows) counts.set(category, (counts.get(category) ?? 0) + count);
    if (!counts.size) return [h("p", {}, t("This capture has no flow events."))];
    return [
      h("div", { class: "trace-menu-row" },
        button(t("All"), t("All"), () => this.setFlows(new Set(counts.keys()))), button(t("None"), t("None"), () => this.setFlows(new Set()))),
      ...[...counts].map(([category, count]) => check(`${category} (${whole(count)})`, session.categories.has(category), (on) => {
        const categories = new Set(session.categories);
        if (on) categories.add(category);
        else categories.delete(category);
        session.setCategories(categories);
      })),
      check(t("Only flows inside the range"), session.insideOnly, (on) => {
        session.insideOnly = on;
        session.moved();
      }),
    ];
  }

  private setFlows(categories: Set<string>): void {
    this.session.setCategories(categories);
    this.reopen("flows");
  }

  private reopen(key: string): void {
    const menu = this.menus.get(key)!;
    menu.open = false;
    requestAnimationFrame(() => (menu.open = true));
  }

  private rankChoices: readonly RankChoice[] = [];

  showRanks(choices: readonly RankChoice[]): void {
    this.rankChoices = choices;
    this.menus.get("ranks")!.hidden = choices.length < 2;
  }

  private ranks(): Child[] {
    const choices = this.rankChoices;
    const set = (names: Set<string>): void => this.actions.setRanks(names);
    const shown = new Set(choices.filter((choice) => choice.shown).map((choice) => choice.name));
    return [
      h("div", { class: "trace-menu-row" },
        button(t("All"), t("All"), () => { set(new Set(choices.map((choice) => choice.name))); this.menus.get("ranks")!.open = false; }),
        button(t("None"), t("None"), () => { set(new Set(choices.filter((choice) => choice.own).map((choice) => choice.name))); this.menus.get("ranks")!.open = false; })),
      ...choices.map((choice) => check(choice.name, choice.shown, (on) => {
        if (on) shown.add(choice.name);
        else shown.delete(choice.name);
        set(new Set(shown));
      }, choice.own)),
      ...this.session.scene.sources.slice(1).map((source) => {
        const field = h("input", { type: "number", step: "any", value: source.shift / 1000, class: "trace-offset", change: () => {
          source.shift = Math.round((Number(field.value) || 0) * 1000);
          this.session.placed();
        } });
        return h("label", { class: "trace-check" }, `${t("Offset")} ${source.label} (us)`, field);
      }),
      h("div", { class: "trace-menu-row" }, `${t("Align")}:`,
        button(t("by clock"), t("All ranks on the common clock of the run"), () => this.actions.realign(true), { "data-testid": "align-clocks" }),
        button(t("by start"), t("All ranks by the selected slice's start"), () => void this.session.alignAll(false)),
        button(t("by end"), t("All ranks by the selected slice's end"), () => void this.session.alignAll(true)),
        button(t("Reset alignment"), t("Reset alignment"), () => {
          this.actions.realign(false);
          this.menus.get("ranks")!.open = false;
        })),
    ];
  }

  private exports(): Child[] {
    const { session } = this;
    const split = h("input", { type: "checkbox" });
    const download = (inRange: boolean): void => {
      const { range, sources } = session.scene;
      const window = inRange && range ? range : session.timeline.view;
      for (const source of sources) {
        const tracks = inRange && range ? rangeTracks(range, source) : null;
        if (tracks && !tracks.length) continue;
        const from = Math.max(0, Math.floor(window.from - source.place));
        const to = Math.max(0, Math.ceil(window.to - source.place));
        const url = source.api.url("trace/export", { from, to, tracks: tracks ? tracks.join(",") : null, split_overlaps: split.checked ? 1 : 0 });
        const link = h("a", { href: url, download: `trace-${source.label}.json` });
        document.body.append(link);
        link.click();
        link.remove();
      }
    };
    return [
      button(t("Chrome JSON of the window"), t("Chrome JSON of the window"), () => download(false)),
      session.scene.range ? button(t("Chrome JSON of the range"), t("Chrome JSON of the range"), () => download(true)) : null,
      h("label", {}, split, ` ${t("One lane per overlap")}`),
      button(t("Picture (PNG)"), t("Picture (PNG)"), () => this.actions.picture()),
    ];
  }
}

function toggle(text: string, label: string, changed: () => void): HTMLButtonElement {
  const toggle = button(text, label, () => {
    toggle.setAttribute("aria-pressed", String(toggle.getAttribute("aria-pressed") !== "true"));
    changed();
  }, { "aria-pressed": "false", "aria-label": label, class: "trace-toggle" });
  return toggle;
}

function check(label: string, on: boolean, changed: (on: boolean) => void, fixed = false): HTMLElement {
  const box = h("input", { type: "checkbox", disabled: fixed, change: () => changed(box.checked) });
  box.checked = on;
  return h("label", { class: "trace-check" }, box, ` ${label}`);
}
