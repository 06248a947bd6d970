// SPDX-License-Identifier: Apache-2.0
// The bottom panel: Slice Detail, Slice List of a range, search hits, marks. Tables twin what the canvas shows.

import { button, h } from "./dom";
import type { Cause, Detail, FlowEnd, RangeSlices, RangeTable } from "../data/model";
import { exactUs, grouped, length, rawUs, whole } from "../numbers";
import type { SearchResult, Session } from "../session";
import type { Source } from "../data/source";
import type { Chosen, Range } from "../canvas/timeline";
import { inLanguage, t } from "../words";

type Tab = "detail" | "list" | "search" | "marks";
const TITLES: Readonly<Record<Tab, string>> = { detail: "Slice Detail", list: "Slice List", search: "Search", marks: "Marks" };
const SORTS = ["name", "wall", "self", "average", "max", "min", "occurrences"];

export interface PanelActions {
  open(view: string, params: Record<string, string>): void;
  toggled(open: boolean): void;
  otherRank(rank: number): (() => void) | null;
}

export class Panel {
  private tab: Tab = "detail";
  private shown = false;
  private readonly tabs = new Map<Tab, HTMLButtonElement>();
  private readonly bodies = new Map<Tab, HTMLElement>();
  private range: Range | null = null;
  private sort = "wall";
  private group: "name" | "track" = "name";
  private asking = 0;
  private told: { readonly chosen: Chosen; readonly detail: Detail; readonly merged: number; readonly scale: string } | null = null;

  constructor(readonly root: HTMLElement, private readonly session: () => Session, private readonly actions: PanelActions) {
    const bar = h("div", { class: "trace-tabs", role: "tablist", "aria-label": t("Trace panels") });
    root.append(h("div", { class: "trace-tab-row" }, bar, h("span", { class: "trace-grow" }), button("✕", t("Close panel (Q)"), () => this.toggle(false))));
    for (const tab of Object.keys(TITLES) as Tab[]) {
      const id = `trace-panel-${tab}`;
      const own = button(t(TITLES[tab]), t(TITLES[tab]), () => this.show(tab), { role: "tab", "aria-controls": id, "data-testid": `trace-tab-${tab}` });
      const body = h("div", { class: "trace-tab-body", role: "tabpanel", id, "aria-label": t(TITLES[tab]), tabindex: 0, hidden: true });
      this.tabs.set(tab, own);
      this.bodies.set(tab, body);
      bar.append(own);
      root.append(body);
    }
    bar.addEventListener("keydown", (event) => {
      const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (!step) return;
      const order = [...this.tabs.keys()];
      const next = order[(order.indexOf(this.tab) + step + order.length) % order.length]!;
      this.show(next);
      this.tabs.get(next)!.focus();
      event.preventDefault();
    });
    this.bodies.get("detail")!.append(hint());
    this.bodies.get("list")!.append(hint());
    this.noMarks();
    this.showHits(null);
    this.select("detail");
    this.toggle(false);
  }

  get open(): boolean {
    return this.shown;
  }

  toggle(open: boolean = !this.shown): void {
    this.shown = open;
    this.root.hidden = !open;
    this.place();
    this.actions.toggled(open);
  }

  show(tab: Tab): void {
    const beside = this.root.classList.contains("trace-beside");
    this.select(tab);
    this.place();
    if (!this.shown) this.toggle(true);
    else if (beside !== this.root.classList.contains("trace-beside")) this.actions.toggled(true);
  }

  /** Details stand beside the picture, where there is room; tables below it. */
  private place(): void {
    this.root.classList.toggle("trace-beside", this.tab === "detail");
    this.root.parentElement?.classList.toggle("trace-has-side", this.shown && this.tab === "detail");
  }

  private select(tab: Tab): void {
    this.tab = tab;
    for (const [one, own] of this.tabs) {
      own.setAttribute("aria-selected", String(one === tab));
      own.tabIndex = one === tab ? 0 : -1;
      this.bodies.get(one)!.hidden = one !== tab;
    }
  }

  focus(): void {
    this.bodies.get(this.tab)!.focus();
  }

  // --- Slice Detail

  detail(chosen: Chosen | null, detail: Detail | null, merged: number): void {
    const body = this.bodies.get("detail")!;
    this.told = chosen && detail && { chosen, detail, merged, scale: this.scaleOf(chosen) };
    if (!chosen || !detail) {
      body.replaceChildren(hint());
      return;
    }
    const session = this.session();
    const reference = session.scene.reference;
    const facts: [string, string][] = [
      ["Title", detail.name],
      ["Start", exactUs(detail.start_ns + chosen.source.place)],
      ["Start(Raw Timestamp)", detail.raw_start_us],
      ["Wall Duration", exactUs(detail.duration_ns)],
      ["Self Time", exactUs(detail.self_ns)],
      ["Track", trackName(chosen.source, detail.track)],
    ];
    const begin = chosen.source.meta.steps.find((one) => one.step === detail.step)?.start_ns ?? null;
    if (begin !== null) facts.splice(2, 0, [t("since start of step {step}", { step: detail.step! }), exactUs(detail.start_ns - begin)]);
    if (detail.step !== null) facts.push(["Step", detail.step_share === null ? `${detail.step}` : `${detail.step} (${t("{percent} % of it", { percent: grouped(detail.step_share * 100) })})`]);
    if (merged > 1) facts.push([t("Merged"), t("{count} slices share this pixel; this is the longest. Zoom in to see each.", { count: whole(merged) })]);
    if (reference && reference !== session.scene.selected) {
      const apart = chosen.start + chosen.source.place - reference.start - reference.source.place;
      facts.push([t("Measuring: from the previous selection"), t("{start} (start to start), {end} (end to start)", { start: length(apart), end: length(apart - reference.dur) })]);
    }
    const clock = (ns: number): string => session.timeline.timeText(ns + chosen.source.place);
    const go = (id: number | null): void => {
      if (id !== null) void session.select(chosen.source, id, true);
    };
    const linked = h("div", { class: "trace-linked" });
    const lists: [string, readonly { id: number | null; name: string | null; start_ns: number; note?: string; duration_ns?: number }[], number][] = [
      [t("Parent"), detail.parent ? [detail.parent] : [], 1],
      [t("Outgoing flows"), detail.flows.filter((flow) => flow.direction === "out").map(noted), 0],
      [t("Incoming flows"), detail.flows.filter((flow) => flow.direction === "in").map(noted), 0],
      [t("Kernels"), detail.kernels, 0],
      [t("Children"), detail.children, detail.children_count],
    ];
    for (const [title, entries, total] of lists) {
      if (!entries.length) continue;
      const most = entries.slice(0, 50);
      linked.append(
        h("h2", { class: "trace-h" }, `${title} (${whole(Math.max(total, entries.length))})`),
        h("ul", {}, ...most.map((entry) =>
          h("li", {}, entry.id === null ? (entry.name ?? "?") : button(entry.name ?? "?", entry.name ?? "?", () => go(entry.id), { class: "trace-link" }),
            h("small", {}, ` ${entry.note ? `${entry.note} · ` : ""}${entry.duration_ns === undefined ? "" : `${length(entry.duration_ns)} `}`)))),
      );
    }
    body.replaceChildren(
      h("div", { class: "trace-detail", "data-testid": "slice-detail" },
        h("div", {}, detail.cause ? causeOf(detail, detail.cause, clock, { slice: go, rank: (rank) => this.actions.otherRank(rank), gap: (direction) => void session.gap(direction) }) : null, originOf(detail, go), this.links(chosen, detail), table(facts)),
        h("div", {}, h("h2", { class: "trace-h" }, t("Arguments")), table(Object.entries(detail.args).map(([key, value]) => [key, textOf(value)]))),
        h("div", {},
          detail.stack.length ? h("h2", { class: "trace-h" }, t("Call stack")) : null,
          detail.stack.length ? h("ol", { class: "trace-stack" }, ...detail.stack.map((frame) => h("li", {}, frame.text))) : null,
          linked),
      ),
    );
  }

  /** Times again, after the ruler counts from elsewhere or captures stand elsewhere. */
  refresh(): void {
    if (!this.told || this.told.scale === this.scaleOf(this.told.chosen)) return;
    const body = this.bodies.get("detail")!;
    const open = body.querySelector("details")?.open ?? false;
    this.detail(this.told.chosen, this.told.detail, this.told.merged);
    body.querySelector("details")?.toggleAttribute("open", open);
  }

  private scaleOf(chosen: Chosen): string {
    const { timeline, scene } = this.session();
    return [timeline.origin.ns, chosen.source.place, scene.reference?.source.place].join();
  }

  private links(chosen: Chosen, detail: Detail): HTMLElement {
    const { operator, kernel, memory, communication } = detail.links;
    const row = h("div", { class: "trace-links" });
    const link = (text: string, view: string, params: Record<string, string>): void => {
      row.append(button(t(text), t(text), () => this.actions.open(view, params)));
    };
    const { run, worker, span } = chosen.source.api.capture;
    const capture: Record<string, string> = { run, worker, span };
    if (operator) link("Show in Operator", "operator", { ...capture, q: operator });
    if (kernel) link("Show in Kernel", "kernel", { ...capture, q: kernel });
    if (memory) link("Show in Memory", "memory", { ...capture, q: operator ?? "", from: String(detail.start_ns), to: String(detail.start_ns + detail.duration_ns) });
    if (communication) link("Show in Communication", "communication", { ...capture, bop: communication });
    return row;
  }

  /** Opens the table that has the slice; null when none has it. */
  tableOf(detail: Detail): (() => void) | null {
    const { operator, kernel, communication } = detail.links;
    const chosen = this.session().scene.selected;
    if (!chosen) return null;
    const { run, worker, span } = chosen.source.api.capture;
    const capture = { run, worker, span };
    if (communication) return () => this.actions.open("communication", { ...capture, bop: communication });
    if (kernel) return () => this.actions.open("kernel", { ...capture, q: kernel });
    return operator ? () => this.actions.open("operator", { ...capture, q: operator }) : null;
  }

  // --- Slice List

  setRange(range: Range | null): void {
    this.range = range;
    if (!range) {
      this.asking++;
      this.bodies.get("list")!.replaceChildren(hint());
      return;
    }
    this.show("list");
    void this.loadRange();
  }

  private async loadRange(): Promise<void> {
    const { range } = this;
    if (!range) return;
    const turn = ++this.asking;
    const body = this.bodies.get("list")!;
    const parts: { source: Source; table: RangeTable; tracks: number[] | null; from: number; to: number }[] = [];
    for (const source of this.session().scene.sources) {
      const tracks = tracksOf(range, source);
      const from = Math.max(0, Math.floor(range.from - source.place));
      const to = Math.ceil(range.to - source.place);
      if ((tracks && !tracks.length) || to <= 0) continue;
      try {
        const answer = await source.api.post<RangeTable>("trace/range", { tracks, from, to, group: this.group, sort: this.sort, limit: 1000 });
        parts.push({ source, table: answer, tracks, from, to });
      } catch (what) {
        if (turn === this.asking) body.replaceChildren(h("p", { role: "alert" }, String(what)));
        return;
      }
    }
    if (turn === this.asking) body.replaceChildren(this.rangeTable(range, parts));
  }

  private rangeTable(range: Range, parts: { source: Source; table: RangeTable; tracks: number[] | null; from: number; to: number }[]): HTMLElement {
    const several = this.session().scene.sources.length > 1;
    const byTrack = this.group === "track";
    const columns = parts[0]?.table.columns ?? [];
    const slices = parts.reduce((sum, part) => sum + part.table.slices, 0);
    const group = h("input", { type: "checkbox", ...(byTrack ? { checked: true } : {}), change: () => {
      this.group = byTrack ? "name" : "track";
      void this.loadRange();
    } });
    const heading = h("p", { class: "trace-range-about", "data-testid": "range-about" },
      h("b", {}, length(range.to - range.from)), ` · ${whole(slices)} ${t("slices")} · `,
      range.tracks ? `${range.tracks.size} ${t("tracks")}` : t("all tracks"), " · ",
      h("label", {}, group, ` ${t("Group by track")}`));
    const head = h("tr", {});
    if (several) head.append(h("th", { scope: "col" }, "Rank"));
    if (byTrack) head.append(h("th", { scope: "col" }, "Track"));
    columns.forEach((column, i) => {
      const own = SORTS[i]!;
      head.append(h("th", { scope: "col", "aria-sort": this.sort === own ? (own === "name" ? "ascending" : "descending") : "none" },
        button(i > 0 && i < 6 ? `${column} (us)` : column, column, () => {
          this.sort = own;
          void this.loadRange();
        })));
    });
    const slots = h("div", { class: "trace-slices" });
    const body = h("tbody", {});
    for (const { source, table: answer, tracks, from, to } of parts)
      answer.rows.forEach((row, i) => {
        const track = answer.tracks?.[i];
        const nameId = answer.name_ids?.[i] ?? source.names.indexOf(row[0]);
        const open = (): void => void this.listSlices(slots, source, nameId, track === undefined ? tracks : [track], from, to, row[0]);
        const line = h("tr", {});
        if (several) line.append(h("td", {}, source.label));
        if (byTrack) line.append(h("td", {}, track === undefined ? "" : trackName(source, track)));
        line.append(h("td", {}, button(row[0], row[0], open, { class: "trace-link" })));
        for (let c = 1; c < row.length; c++) line.append(h("td", { class: "trace-number" }, c === 6 ? whole(row[c] as number) : exact(row[c] as number)));
        body.append(line);
      });
    const total = parts.reduce((sum, part) => sum + part.table.total, 0);
    return h("div", { class: "trace-range" },
      h("div", {}, heading, h("table", { class: "trace-table", "data-testid": "table-slice-list" }, h("thead", {}, head), body),
        total > body.childElementCount ? h("p", {}, t("{shown} of {all} names; sort to see others", { shown: whole(body.childElementCount), all: whole(total) })) : null),
      slots);
  }

  private async listSlices(slots: HTMLElement, source: Source, name: number, tracks: number[] | null, from: number, to: number, title: string): Promise<void> {
    const answer = await source.api.post<RangeSlices>("trace/range/slices", { tracks, from, to, name, offset: 0, limit: 500 });
    let at = -1;
    const go = (index: number): void => {
      at = (index + answer.ids.length) % answer.ids.length;
      void this.session().select(source, answer.ids[at]!, true, 1, true);
      entries.forEach((entry, i) => entry.toggleAttribute("aria-current", i === at));
      entries[at]?.scrollIntoView({ block: "nearest" });
    };
    const entries = answer.ids.map((_, i) =>
      button(`${exactUs(answer.start_ns[i]! + source.place)} · ${length(answer.duration_ns[i]!)}`, trackName(source, answer.track[i]!), () => go(i), { class: "trace-link" }));
    slots.replaceChildren(
      h("h2", { class: "trace-h" }, `${title} (${whole(answer.total)})`),
      h("p", {}, button("‹", t("Previous"), () => go(at - 1)), button("›", t("Next"), () => go(at + 1))),
      h("ol", {}, ...entries.map((entry) => h("li", {}, entry))),
      answer.total > answer.ids.length ? h("p", {}, t("the first {shown} of {all}", { shown: answer.ids.length, all: whole(answer.total) })) : "");
  }

  // --- Search and marks

  showHits(result: SearchResult | null): void {
    const body = this.bodies.get("search")!;
    if (!result) {
      body.replaceChildren(h("p", {}, `${t("Search slices ( / )")}`));
      return;
    }
    const list = h("ol", { class: "trace-hits" });
    result.hits.slice(0, 300).forEach((hit, i) =>
      list.append(h("li", i === result.at ? { "aria-current": "true" } : {},
        button(hit.name, hit.name, () => this.session().hit(1, i), { class: "trace-link" }),
        h("small", {}, ` ${exactUs(hit.start_ns + hit.source.place)} · ${length(hit.duration_ns)} · ${trackName(hit.source, hit.track)}`))));
    body.replaceChildren(
      h("p", { "data-testid": "search-count" }, result.count ? `${whole(result.count)} ${t("hits")} · ${whole(result.names)} ${t("names")}` : t("Nothing found"),
        result.count > 300 ? ` · ${t("the first {shown} are listed, n / N walk through {all}", { shown: 300, all: whole(Math.min(result.count, result.hits.length)) })}` : ""), list);
    list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  private noMarks(): void {
    this.bodies.get("marks")!.replaceChildren(h("p", {}, t("No marks yet: K sets a flag at the cursor, or marks the range.")));
  }

  marks(): void {
    const body = this.bodies.get("marks")!;
    const session = this.session();
    const { marks } = session.scene;
    if (!marks.length) return this.noMarks();
    const base = session.scene.sources[0]?.meta.base_ns ?? "0";
    body.replaceChildren(h("ul", { class: "trace-marks" }, ...marks.map((mark, i) => {
      const name = h("input", { type: "text", value: mark.name, "aria-label": t("Name of the mark"), placeholder: t("Name of the mark"), change: () =>
        session.setMarks(marks.map((one, j) => (j === i ? { ...one, name: name.value } : one))) });
      return h("li", {}, h("span", { class: "trace-swatch", style: `background:${mark.colour}` }), name,
        button(mark.to === null ? exactUs(mark.from) : `${exactUs(mark.from)} + ${length(mark.to - mark.from)}`, rawUs(base, mark.from), () => {
          session.timeline.view.keep();
          if (mark.to === null) session.timeline.view.reveal(mark.from, mark.from + 1);
          else session.timeline.view.fit(mark.from, mark.to);
          session.moved();
          session.timeline.draw();
        }, { class: "trace-link" }),
        button(t("Remove"), t("Remove"), () => session.setMarks(marks.filter((_, j) => j !== i))));
    })));
  }
}

interface CauseLinks {
  readonly slice: (id: number | null) => void;
  /** Opens the timeline of another rank at the same time; null when it is not in this run. */
  readonly rank: (rank: number) => (() => void) | null;
  readonly gap: (direction: 1 | -1) => void;
}

/** Why a device stood still: a sentence, its parts, what the host did and where, the task that ended it, and the rank that came late. */
function causeOf(detail: Detail, cause: Cause, clock: (ns: number) => string, go: CauseLinks): HTMLElement {
  const linked = (name: string, id: number | null): Node => (id === null ? document.createTextNode(name) : button(name, name, () => go.slice(id), { class: "trace-link" }));
  const all = cause.parts.reduce((sum, part) => sum + part.ns, 0) || 1;
  const { ended_by: ended, place, alike } = cause;
  const times = ended ? ([["issued", ended.issue], ["launched", ended.launch], ["started", ended.start]] as const).filter(([, at]) => at !== null) : [];
  const heading = (text: string): HTMLElement => h("h2", { class: "trace-h" }, t(text));
  const where = place ? ([["line", place.line], ["innermost", place.innermost === place.line ? "" : place.innermost], ["module", place.modules.join(" › ")]] as const).filter(([, text]) => text) : [];
  return h("section", { class: "trace-cause", "data-testid": "cause" },
    h("div", { class: "trace-cause-head" }, heading(cause.late.length ? "Why it waits" : "Why the device was idle"),
      ...(cause.late.length ? [] : [
        button("◂", `${t("Previous gap")} (<)`, () => go.gap(-1), { "data-testid": "gap-before" }),
        button("▸", `${t("Next gap")} (>)`, () => go.gap(1), { "data-testid": "gap-after" }),
      ])),
    h("p", { class: "trace-when", "data-testid": "cause-when" }, [
      `${clock(detail.start_ns)} – ${clock(detail.start_ns + detail.duration_ns)}`, length(detail.duration_ns),
      ...(detail.step_share === null ? [] : [t("{percent} % of the step", { percent: (detail.step_share * 100).toFixed(1) })]),
    ].join(" · ")),
    h("p", { class: "trace-why" }, inLanguage(cause.why)),
    cause.parts.length ? h("div", { class: "trace-parts", "aria-hidden": "true" }, ...cause.parts.map((part) => h("i", { class: `part ${familyOf(part.part)}`, style: `width:${(100 * part.ns) / all}%` }))) : null,
    cause.parts.length ? h("ul", { class: "trace-shares" }, ...cause.parts.map((part) => h("li", {},
      h("i", { class: `part ${familyOf(part.part)}`, "aria-hidden": "true" }), h("span", {}, inLanguage(part.name)), h("b", {}, length(part.ns)), h("small", {}, `${((100 * part.ns) / all).toFixed(1)} %`)))) : null,
    ...(cause.operators.length ? [heading("What the host did"), h("ul", { class: "trace-shares" }, ...cause.operators.map((one) => h("li", {}, h("span", {}, linked(one.name, one.id)), h("b", {}, length(one.ns)))))] : []),
    ...(where.length ? [heading("Source"), h("dl", { class: "trace-place", "data-testid": "cause-place" }, ...where.flatMap(([word, text]) => [h("dt", {}, t(word)), h("dd", { title: text }, shortPath(text))]))] : []),
    ...(ended ? [heading("Ended by"), h("p", {}, linked(ended.name, ended.id), h("br"), h("small", {}, times.map(([word, at]) => `${t(word)} ${clock(at!)}`).join(" → ")))] : []),
    ...(cause.late.length ? [heading("Waited for"), h("ul", { class: "trace-shares" }, ...cause.late.slice(0, 8).map((one) => {
      const open = cause.global ? go.rank(one.rank) : null;
      return h("li", {}, h("span", {}, linked(`${t("rank")} ${one.rank}`, one.id), open ? button("↗", `${t("Open rank")} ${one.rank}`, open, { class: "trace-link", "data-testid": "open-rank" }) : null), h("b", {}, length(one.ns)));
    }))] : []),
    alike && alike.count > 1 ? alikeOf(alike, clock, go) : null);
}

/** All gaps of one kind, the longest of them by name. */
function alikeOf(alike: NonNullable<Cause["alike"]>, clock: (ns: number) => string, go: CauseLinks): HTMLElement {
  const { count, longest } = alike;
  return h("details", { class: "trace-alike", "data-testid": "alike" },
    h("summary", {}, t("{count} gaps of this kind · together {time}", { count: whole(count), time: length(alike.ns) })),
    longest.length < count ? h("small", {}, t("the longest {count}", { count: longest.length })) : null,
    h("ul", { class: "trace-shares" }, ...longest.map((one) => h("li", {}, h("span", {}, button(clock(one.start_ns), clock(one.start_ns), () => go.slice(one.id), { class: "trace-link" })), h("b", {}, length(one.ns))))));
}

/** Operator, line and module behind a slice. */
function originOf(detail: Detail, go: (id: number | null) => void): HTMLElement | null {
  const { origin } = detail;
  if (!origin || (!origin.line && !origin.module && origin.id === detail.id)) return null;
  const entries: [string, Node | string][] = [];
  if (origin.id !== detail.id) entries.push([t("operator"), origin.id === null ? origin.operator : button(origin.operator, origin.operator, () => go(origin.id), { class: "trace-link" })]);
  if (origin.line) entries.push([t("line"), shortPath(origin.line)]);
  if (origin.module) entries.push([t("module"), origin.module]);
  return entries.length ? h("section", { "data-testid": "origin" }, h("h2", { class: "trace-h" }, t("Source")),
    h("dl", { class: "trace-place" }, ...entries.flatMap(([word, value]) => [h("dt", {}, word), h("dd", typeof value === "string" ? { title: value } : {}, value)]))) : null;
}

/** Paths keep what tells them apart: the last two folders and the file. */
const shortPath = (text: string): string => (text.includes("›") ? text : text.replace(/^.*\/((?:[^/]+\/){0,2}[^/]+)$/, "$1"));

/** Whose time a part of a gap is; the colours are those of the Verdict view. */
function familyOf(part: string): string {
  const layer = part.split(".")[1] ?? part;
  if (["operator", "api", "queue", "launch", "alloc", "compile"].includes(layer)) return "dispatch";
  if (["python", "data", "checkpoint", "gc"].includes(layer)) return "python";
  return layer === "sync" ? "sync" : "unknown";
}

const noted = (flow: FlowEnd): FlowEnd & { note: string } => ({ ...flow, note: flow.category });
const hint = (): HTMLElement => h("p", { class: "trace-hint" }, t("Click a slice to see its details. Shift-drag, or drag on the ruler, to sum up a range."));
const exact = (us: number): string => us.toLocaleString("en-US", { minimumFractionDigits: 3, maximumFractionDigits: 3 });
const textOf = (value: unknown): string => (value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));

function table(entries: readonly (readonly [string, string])[]): HTMLElement {
  return h("table", { class: "trace-facts" }, h("tbody", {}, ...entries.map(([key, value]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, value)))));
}

export function trackName(source: Source, track: number): string {
  const found = source.meta.tracks[track];
  return found ? `${source.meta.processes[found.process]?.name ?? ""} / ${found.label}` : "";
}

export function tracksOf(range: Range, source: Source): number[] | null {
  if (range.tracks === null) return null;
  const prefix = `${source.number}.t`;
  return [...range.tracks].filter((key) => key.startsWith(prefix)).map((key) => Number(key.slice(prefix.length)));
}
