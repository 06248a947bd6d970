// SPDX-License-Identifier: Apache-2.0
// The Trace view as a whole: elements, captures, address, test hooks.

import { type Api, ApiError } from "../api";
import { apiFor, linkHere } from "../state";
import { copyText } from "../ui/controls";
import { stageText } from "../ui/messages";
import type { TraceState } from "../trace_state";
import { type Address, readAddress, writeAddress } from "./address";
import { Bar } from "./controls/bar";
import { ContextMenu, type MenuItem } from "./controls/context_menu";
import { button, h } from "./controls/dom";
import { mergedText } from "./canvas/draw";
import { Gestures } from "./controls/gestures";
import { Heads, unitOf } from "./controls/heads";
import { Keys } from "./controls/keys";
import { type Lane, processKey, ROW, trackKey } from "./canvas/layout";
import { grouped, length, rawUs, whole } from "./numbers";
import { Panel, trackName } from "./controls/panel";
import { type Picked, pickSample } from "./canvas/pick";
import { Session } from "./session";
import { ShadowList } from "./controls/shadow_list";
import { align, type Clocks, clocksOf, offsetOf } from "./data/clocks";
import { Source } from "./data/source";
import { MANY_SOURCES, Summary } from "./data/summary";
import { readTheme } from "./canvas/theme";
import { type Scene, Timeline } from "./canvas/timeline";
import { t, setLanguage } from "./words";

const MOST_OPEN_ROWS = 400;
const MOST_OPEN_PLANES = 3;
const ADDRESS_MS = 250;
const LOWEST_ROW = 4;

interface TraceHooks {
  trace?: unknown;
}

declare global {
  interface Window {
    __stepscope?: TraceHooks;
    __viewerPerf?: unknown;
  }
}

export class TraceView {
  private readonly root: HTMLElement;
  private readonly timeline: Timeline;
  private readonly session: Session;
  private readonly scene: Scene;
  private readonly panel: Panel;
  private readonly bar: Bar;
  private readonly heads: Heads;
  private readonly keys: Keys;
  private readonly gestures: Gestures;
  private readonly list: ShadowList;
  private readonly menu: ContextMenu;
  private readonly summary: Summary;
  private readonly status = h("div", { class: "trace-status" });
  private readonly origin = h("span", { class: "trace-origin", "data-testid": "trace-origin" });
  private readonly live = h("div", { class: "trace-unseen", role: "status", "aria-live": "polite", "data-testid": "trace-live" });
  private readonly tip = h("div", { class: "trace-tip", role: "tooltip", hidden: true });
  private readonly message = h("div", { class: "trace-message", role: "status" });
  private readonly filter: HTMLInputElement;
  private readonly stop = new AbortController();
  private readonly sizes: ResizeObserver;
  private readonly mounted = performance.now();
  private firstPicture = 0;
  private readyAt = 0;
  private addressTimer = 0;
  private noticeTimer = 0;
  private written: Record<string, string | null> = {};
  private defaultFold: string[] = [];
  private opened = false;
  private clocks: Promise<Clocks> | null = null;
  private placing = 0;
  private byClock = false;
  private shifts: Address["shifts"];

  constructor(host: HTMLElement, private readonly api: Api, private state: TraceState) {
    setLanguage(state.language);
    const body = h("canvas", {
      class: "trace-canvas", tabindex: 0, role: "application", "data-testid": "trace-canvas",
      "aria-label": t("Timeline. W and S zoom, A and D pan, full stop and comma walk through slices, question mark lists all keys."),
    });
    const top = h("canvas", { class: "trace-top-canvas", "aria-hidden": "true", "data-testid": "trace-ruler" });
    const space = h("div", {});
    const headsRoot = h("div", { class: "trace-heads", role: "group", "aria-label": t("Tracks") });
    const listRoot = h("ul", { class: "trace-shadow" });
    const stick = h("div", { class: "trace-stick" }, headsRoot, h("div", { class: "trace-canvas-box" }, body, this.tip, listRoot));
    const scroll = h("div", { class: "trace-scroll" }, stick, space);
    this.filter = h("input", { type: "search", placeholder: t("Filter tracks"), "aria-label": t("Filter tracks"), class: "trace-filter",
      input: () => this.session.arrange({ filter: this.filter.value }) });
    const corner = h("div", { class: "trace-corner" }, this.origin, this.filter,
      h("span", { class: "trace-corner-buttons" },
        button("⊞", t("Unfold all"), () => this.session.arrange({ folded: new Set() })),
        button("⊟", t("Fold all"), () => this.foldAll()),
        button("↕", t("Fit the height"), () => this.fitHeight())));
    const barRoot = h("div", { class: "trace-bar", role: "toolbar", "aria-label": "Trace" });
    const panelRoot = h("div", { class: "trace-panel" });
    const splitter = h("div", { class: "trace-splitter", role: "separator", "aria-orientation": "horizontal", "aria-label": t("Height of the panel"), tabindex: 0,
      "aria-valuemin": 80, "aria-valuemax": 600, "aria-valuenow": 240 });
    this.root = h("section", { class: "trace", "data-ready": "false", "data-testid": "view-trace" },
      barRoot, h("div", { class: "trace-top" }, corner, top), h("div", { class: "trace-main" }, scroll, this.message), splitter, panelRoot, this.status, this.live);
    host.append(this.root);
    this.root.classList.toggle("trace-dark", state.dark);
    const address = readAddress(state.params);
    this.byClock = address.byClock;
    this.shifts = address.shifts;
    this.scene = {
      sources: [], theme: readTheme(this.root), selected: null, reference: null, range: null, marks: [...address.marks], flows: [], selectedFlows: [], hits: null,
      choice: { folded: new Set(), hidden: new Set(address.hidden), pinned: [...address.pins], filter: "", order: [...address.order], rowHeight: address.rowHeight ?? ROW },
    };
    this.timeline = new Timeline({ scroll, space, body, top }, this.scene);
    this.session = new Session(this.timeline, this.scene, {
      detail: (chosen, detail, merged, walking) => {
        this.panel.detail(chosen, detail, merged);
        if (chosen && detail) {
          if (!walking) this.panel.show("detail");
          this.live.textContent = `${detail.name}, ${this.timeline.timeText(detail.start_ns + chosen.source.place)}, ${length(detail.duration_ns)}, ${trackName(chosen.source, detail.track)}`;
        }
        this.changed();
      },
      range: (range) => this.panel.setRange(range),
      searched: (result) => {
        this.bar.showCount();
        this.panel.showHits(result);
        this.changed();
      },
      marks: () => this.panel.marks(),
      notice: (text) => this.notice(text),
      changed: () => this.changed(),
    });
    this.panel = new Panel(panelRoot, () => this.session, {
      open: (view, params) => this.state.open(view, params),
      otherRank: (rank) => {
        const other = this.state.workers.find((one) => one.worker === String(rank));
        return other ? () => void this.openAtThisTime(other) : null;
      },
      toggled: () => {
        splitter.hidden = panelRoot.hidden;
        this.fitSize?.();
      },
    });
    this.bar = new Bar(barRoot, this.session, { setRanks: (names) => void this.setRanks(names), realign: (byClock) => this.realign(byClock), picture: () => this.picture() });
    this.heads = new Heads(headsRoot, this.timeline, {
      fold: (lane) => this.session.fold(lane.key),
      pin: (lane) => this.session.pin(lane.key),
      hide: (lane) => this.session.hide(lane.key),
      move: (lane, by) => this.session.shiftLane(lane, by),
    });
    this.list = new ShadowList(listRoot, this.timeline, this.session);
    this.gestures = new Gestures(this.timeline, {
      select: (picked) => this.session.selectPicked(picked),
      path: ({ source, start, end, kind, id }) => {
        // A task can be selected; the host's way to one is a stretch of many things.
        if (kind !== "host" && id !== null) void this.session.select(source, id, false);
        else this.session.setRange({ from: start + source.place, to: end + source.place, tracks: null }, true);
      },
      menu: (picked, lane, x, y) => void this.openMenu(picked, lane, x, y),
      range: (range, done) => this.session.setRange(range, done),
      hover: (picked, x, y) => this.hover(picked, x, y),
      moved: () => this.session.moved(),
      scrolled: () => this.changed(),
    });
    this.keys = new Keys(this.timeline, this.keyActions(), this.root);
    this.menu = new ContextMenu(this.root);
    this.summary = new Summary(() => (this.scene.sources.length <= MANY_SOURCES ? this.scene.sources : [...new Set(this.timeline.visible().map((lane) => lane.source))]), (lanes) => {
      if (lanes) this.timeline.relayout();
      this.heads.showBusy();
      this.timeline.draw();
    });
    this.timeline.onFrame = (seconds) => this.keys.step(seconds);
    this.timeline.onDrawn = (complete) => this.drawn(complete);
    this.sizes = new ResizeObserver(() => this.fitSize());
    this.sizes.observe(scroll);
    this.split(splitter, panelRoot);
  }

  private readonly fitSize = (): void => {
    const { scroll, body } = this.timeline.surfaces;
    const box = body.parentElement!;
    const { selected } = this.scene;
    const seen = selected !== null && this.session.rowInView(selected);
    this.timeline.resize(box.clientWidth, scroll.clientHeight);
    (scroll.firstElementChild as HTMLElement).style.height = `${this.timeline.height}px`;
    // A panel that opens, or a lower window, must not cover what the reader looks at.
    if (seen && selected) this.session.scrollTo(selected);
  };

  // --- captures

  async open(): Promise<void> {
    this.message.textContent = t("Reading the timeline…");
    try {
      const first = await this.openSource(0, this.api, this.workerLabel(this.api.capture));
      this.readyAt = performance.now();
      first.shift = this.shifts.get(first.label) ?? 0;
      this.scene.sources = [first];
      const address = readAddress(this.state.params);
      this.defaultFold = this.foldsOf(first);
      this.scene.choice = { ...this.scene.choice, folded: new Set(address.folded ?? this.defaultFold) };
      this.timeline.view.first = first.place;
      this.timeline.view.last = first.place + Math.max(1, first.meta.length_ns);
      first.paintNames(this.scene.theme, null);
      this.apply(address);
      if (!first.meta.slices && !first.meta.counters) throw new ApiError(404, { title: t("This capture has no timeline"), hint: t("Collect with activities CPU and NPU (or CUDA).") });
      this.message.textContent = "";
      this.fitSize();
      this.timeline.relayout();
      this.scrollBack(address);
      this.opened = true;
      this.showRanks();
      this.statusLine();
      this.bar.showStep();
      await Promise.all([
        first.loadNames(() => this.session.repaint(first), this.stop.signal),
        address.ranks.length ? this.setRanks(new Set(address.ranks)) : null,
      ]);
      await this.restore(address);
    } catch (problem) {
      if (!this.stop.signal.aborted) this.failed(problem);
    }
  }

  /** Another capture's own timeline at this time of the day: each counts from its own first event. */
  private async openAtThisTime({ run, worker, span }: TraceState["workers"][number]): Promise<void> {
    const { view } = this.timeline;
    const base = BigInt(this.scene.sources[0]!.meta.base_ns);
    try {
      const { base_ns: other } = await apiFor([run, worker, span]).get<{ readonly base_ns: string }>("trace/meta", {}, { signal: this.stop.signal });
      const later = Number(base - BigInt(other));
      this.state.open("trace", { run, worker, span, t: `${Math.round(view.from + later)}_${Math.round(view.to + later)}` });
    } catch (problem) {
      if (!this.stop.signal.aborted) this.notice(problem instanceof ApiError ? t(problem.message) : String(problem));
    }
  }

  private openSource(number: number, api: Api, label: string): Promise<Source> {
    return Source.open(number, api, label, {
      onTiles: () => this.timeline.draw(),
      onProblem: (problem) => this.notice(problem instanceof ApiError ? t(problem.message) : String(problem)),
      onProgress: (progress) => {
        this.message.textContent = stageText(progress);
      },
      signal: this.stop.signal,
    });
  }

  private failed(problem: unknown): void {
    const error = problem instanceof ApiError ? problem : null;
    this.message.replaceChildren(h("div", { class: "trace-problem", role: "alert" },
      h("b", {}, error ? t(error.message) : String(problem)), ...[error?.detail, error?.file, error?.hint].filter(Boolean).map((line) => h("p", {}, t(line!)))));
    this.root.dataset["ready"] = "true";
  }

  /** Counters are folded, and planes of communication where there are many; of very many rows, or of two captures to compare, all but the device. */
  private foldsOf(source: Source): string[] {
    const few = source.meta.rows.length <= MOST_OPEN_ROWS && !this.state.together;
    const tracks = (process: number): number => source.meta.tracks.reduce((sum, track) => sum + Number(track.process === process), 0);
    const folded = source.meta.processes.filter(({ id, group }) =>
      group === "counters" || (group === "communication" && tracks(id) > MOST_OPEN_PLANES) || (!few && group === "host" && id > 0));
    const flat = source.meta.tracks.filter((track) => track.kind === "counter" && !track.min && !track.max).map((track) => trackKey(source, track.id));
    return [...flat, ...folded.map((process) => processKey(source, process.id))];
  }

  private foldAll(): void {
    const folded = new Set<string>();
    for (const source of this.scene.sources) for (const process of source.meta.processes) folded.add(processKey(source, process.id));
    this.session.arrange({ folded });
  }

  /** Rows just so high that all lanes can be seen, if that is possible at all; and back. */
  private fitHeight(): void {
    const { choice } = this.scene;
    if (choice.rowHeight !== ROW) return this.session.arrange({ rowHeight: ROW });
    const { layout, height } = this.timeline;
    const rows = [...layout.lanes, ...layout.pinned].reduce((sum, lane) => sum + (lane.kind === "slices" && !lane.folded ? lane.rows.length : 0), 0);
    if (!rows) return;
    const others = layout.height + layout.pinnedHeight - rows * ROW;
    this.session.arrange({ rowHeight: Math.max(LOWEST_ROW, Math.min(ROW - 1, Math.floor((height - 24 - others) / rows))) });
    this.timeline.surfaces.scroll.scrollTop = 0;
  }

  private workerLabel({ run, worker, span }: { run: string; worker: string; span: string }): string {
    const listed = this.state.workers.find((one) => one.run === run && one.worker === worker && one.span === span);
    if (listed?.label) return listed.label;
    const several = this.state.workers.filter((one) => one.worker === worker).length > 1;
    return several ? `${worker} · ${span}` : worker;
  }

  private showRanks(): void {
    const shown = new Set(this.scene.sources.map((source) => source.label));
    const own = this.scene.sources[0]?.label;
    this.bar.showRanks(this.state.workers.map((one) => {
      const name = one.label ?? this.workerLabel(one);
      return { name, own: name === own, shown: shown.has(name) };
    }));
  }

  /** Captures beside the first one, by label. The picture is not ready before they are where they belong. */
  private async setRanks(names: Set<string>): Promise<void> {
    this.placing++;
    try {
      await this.showCaptures(names);
    } finally {
      this.placing--;
      this.timeline.draw();
    }
  }

  private async showCaptures(names: Set<string>): Promise<void> {
    const [first, ...others] = this.scene.sources;
    if (!first) return;
    const kept = others.filter((source) => names.has(source.label));
    for (const source of others) if (!kept.includes(source)) source.destroy();
    const address = readAddress(this.state.params);
    const known = new Set([first.label, ...kept.map((source) => source.label)]);
    // The number is the worker's place in the list, so that keys of tracks stay the same from visit to visit.
    const wanted = this.state.workers
      .map((one, at) => ({ ...one, number: at + 1, label: one.label ?? this.workerLabel(one) }))
      .filter(({ label }) => names.has(label) && !known.has(label));
    const opened = await Promise.all(wanted.map(({ run, worker, span, number, label }) =>
      this.openSource(number, apiFor([run, worker, span]), label).catch((problem: unknown) => {
        this.notice(`${label}: ${problem instanceof ApiError ? t(problem.message) : String(problem)}`);
        return null;
      })));
    const fresh = opened.filter((source) => source !== null);
    for (const source of fresh) {
      source.offset = offsetOf(source, first, !!this.state.together);
      source.shift = this.shifts.get(source.label) ?? 0;
      source.paintNames(this.scene.theme, null);
      if (this.state.together && address.folded === null) {
        this.defaultFold = [...this.defaultFold, ...this.foldsOf(source)];
        this.scene.choice = { ...this.scene.choice, folded: new Set([...this.scene.choice.folded, ...this.foldsOf(source)]) };
      }
    }
    this.message.textContent = "";
    const order = (source: Source): number => source.number;
    this.scene.sources = [first, ...[...kept, ...fresh].sort((a, b) => order(a) - order(b))];
    if (this.scene.selected && !this.scene.sources.includes(this.scene.selected.source)) this.session.clearSelection();
    if (this.scene.reference && !this.scene.sources.includes(this.scene.reference.source)) this.scene.reference = null;
    this.scene.flows = [];
    this.heads.clear();
    const { view } = this.timeline;
    const whole = view.from <= view.first && view.to >= view.last;
    this.session.placed();
    if (whole) view.whole();
    this.showRanks();
    this.statusLine();
    if (fresh.length) void this.alignClocks();
    await Promise.all(fresh.map((source) => source.loadNames(() => this.session.repaint(source), this.stop.signal)));
  }

  /** Whether ranks belong on the common clock of their run: those of a small one always do. */
  private get onCommonClock(): boolean {
    return !this.state.together && (this.byClock || this.state.workers.length <= MANY_SOURCES);
  }

  /** The clocks take an analysis of the whole run: the reader goes on meanwhile, only the picture is not ready before. */
  private async alignClocks(): Promise<void> {
    if (!this.onCommonClock || this.scene.sources.length < 2) return;
    const asked = new Map(this.scene.sources.map((source) => [source, source.shift]));
    this.placing++;
    try {
      this.clocks ??= clocksOf(this.api, this.stop.signal);
      const clocks = await this.clocks;
      if (!this.onCommonClock) return;
      this.heads.clear();
      this.session.place(() => align(this.scene.sources, clocks, asked));
    } catch (problem) {
      this.clocks = null;
      if (!this.stop.signal.aborted) this.notice(problem instanceof ApiError ? t(problem.message) : String(problem));
    } finally {
      this.placing--;
      if (!this.stop.signal.aborted) this.timeline.draw();
    }
  }

  /** Undoes what the reader moved: all ranks stand on the common clock of the run, or as they stood at first. */
  private realign(byClock: boolean): void {
    if (byClock && this.state.together) return;
    const { sources } = this.scene;
    this.byClock = byClock;
    this.shifts = new Map();
    this.heads.clear();
    this.session.place(() => {
      for (const source of sources) {
        source.shift = 0;
        if (this.onCommonClock) continue;
        source.clock = null;
        source.offset = offsetOf(source, sources[0]!, !!this.state.together);
      }
    });
    void this.alignClocks();
  }

  // --- address

  /** What of an address can be shown at once. */
  private apply(address: Address): void {
    const { view } = this.timeline;
    if (address.window) view.set(...address.window);
    else if (!this.session.showSteps(null)) view.whole();
    this.scene.range = address.range ? { from: address.range[0], to: address.range[1], tracks: null } : null;
  }

  /** What of an address takes a question to the server. */
  private async restore(address: Address): Promise<void> {
    const known = new Set(this.scene.sources.flatMap((source) => source.meta.flows.map((flow) => flow.category)));
    if (address.flows.length) this.session.setCategories(new Set(address.flows.filter((category) => known.has(category))));
    if (this.scene.range) this.panel.setRange(this.scene.range);
    if (this.scene.marks.length) this.panel.marks();
    if (address.find) {
      this.bar.setOptions(address.find, address.findMode);
      await this.bar.findNow();
      // A row that stands for several slices leads to the longest of them, not only to a search.
      if (!address.window && !address.slice && !address.tableRow) this.session.longestHit();
    }
    const first = this.scene.sources[0]!;
    const lost = address.pins.filter((key) => !this.timeline.layout.byTrack.has(key));
    if (lost.length) this.notice(t("The address names tracks that are not here: {names}.", { names: lost.join(", ") }));
    if (address.slice) {
      const source = this.scene.sources.find((one) => one.number === address.slice!.source);
      if (source) {
        const { from, to } = this.timeline.view;
        await this.session.select(source, address.slice.id, !address.window);
        // The window is of the common clock; until that is known a slice of another capture may be elsewhere.
        if (address.window && this.placing && source !== first) this.timeline.view.set(from, to);
        // Only now, with the panel open, can the tracks be scrolled as far as they were.
        if (address.window) this.scrollBack(address);
        if (this.scene.selected) this.session.scrollTo(this.scene.selected);
      } else this.notice(t("The address names a slice of a capture that is not shown ({name}).", { name: address.slice.source }));
    } else if (address.tableRow) await this.session.choose(first, { table: address.tableRow.table, row: address.tableRow.row }, true);
  }

  private scrollBack(address: Address): void {
    const { layout, surfaces } = this.timeline;
    const lane = address.scroll && layout.lanes.find((one) => one.key === address.scroll!.lane);
    if (lane) surfaces.scroll.scrollTop = lane.y + address.scroll!.above;
  }

  private scrolledTo(): Address["scroll"] {
    const { layout, scrollTop } = this.timeline;
    const lane = scrollTop > 0 ? layout.lanes.find((one) => one.y + one.height > scrollTop) : undefined;
    return lane ? { lane: lane.key, above: Math.round(scrollTop - lane.y) } : null;
  }

  private changed(): void {
    this.statusLine();
    this.bar.showStep();
    this.panel.refresh();
    clearTimeout(this.addressTimer);
    if (this.opened) this.addressTimer = window.setTimeout(() => this.write(), ADDRESS_MS);
  }

  private write(): void {
    const { view } = this.timeline;
    const { selected, choice, range, marks, sources } = this.scene;
    const folded = [...choice.folded];
    const asDefault = folded.length === this.defaultFold.length && folded.every((key) => this.defaultFold.includes(key));
    const next = writeAddress({
      window: [view.from, view.to], slice: selected ? { source: selected.source.number, id: selected.id } : null, tableRow: null,
      range: range ? [range.from, range.to] : null, pins: choice.pinned, hidden: [...choice.hidden], folded: asDefault ? null : folded,
      flows: [...this.session.categories], find: this.bar.search.value, findMode: this.bar.search.value ? this.bar.mode : "",
      ranks: sources.slice(1).map((source) => source.label), shifts: new Map(sources.map((source) => [source.label, source.shift])), marks,
      scroll: this.scrolledTo(),
      order: choice.order, byClock: this.byClock, rowHeight: choice.rowHeight === ROW ? null : choice.rowHeight,
    });
    const changes: Record<string, string | null> = {};
    for (const [key, value] of Object.entries(next)) if (value !== (this.written[key] ?? null) || !(key in this.written)) changes[key] = value;
    this.written = next;
    if (Object.keys(changes).length) this.state.setParams(changes);
  }

  update(state: TraceState): void {
    const before = this.state;
    this.state = state;
    if (state.dark !== before.dark) {
      this.root.classList.toggle("trace-dark", state.dark);
      if (this.opened) this.root.dataset["ready"] = "false";
      // The shell may set its own variables in the same turn.
      requestAnimationFrame(() => {
        this.scene.theme = readTheme(this.root);
        this.session.repaint();
      });
    }
    if (state.language !== before.language) setLanguage(state.language);
    if (state.workers !== before.workers) this.showRanks();
    if (!this.opened) return;
    const foreign = ["t", "slice", "table", "row", "find", "range"].filter((key) => (state.params[key] ?? null) !== (this.written[key] ?? null) && key in state.params);
    if (!foreign.length || state.params === before.params) return;
    const changedNow = foreign.some((key) => state.params[key] !== before.params[key]);
    if (!changedNow) return;
    const address = readAddress(state.params);
    if (address.window) this.timeline.view.set(...address.window);
    this.timeline.draw();
    void this.restore(address);
  }

  destroy(): void {
    this.stop.abort();
    clearTimeout(this.addressTimer);
    clearTimeout(this.noticeTimer);
    this.sizes.disconnect();
    this.keys.destroy();
    this.menu.destroy();
    this.summary.destroy();
    this.gestures.destroy();
    this.bar.destroy();
    this.session.destroy();
    this.timeline.destroy();
    for (const source of this.scene.sources) source.destroy();
    this.root.remove();
    if (window.__stepscope?.trace) delete window.__stepscope.trace;
  }

  // --- words around the picture

  private drawn(complete: boolean): void {
    this.heads.place();
    const named = this.scene.sources.every((source) => source.names.length >= source.meta.names);
    if (complete && named && this.opened && !this.firstPicture) {
      this.firstPicture = performance.now();
      this.expose();
    }
    this.root.dataset["ready"] = String(complete && named && this.opened && !this.placing);
    if (!complete) return;
    this.list.refresh();
    const { view, width } = this.timeline;
    if (this.firstPicture) this.summary.ask(view.from, view.to, width);
  }

  private statusLine(): void {
    const { sources, range } = this.scene;
    if (!sources.length) return;
    const sum = (of: (source: Source) => number): number => sources.reduce((total, source) => total + of(source), 0);
    const parts = [
      `${whole(sum((source) => source.meta.slices))} ${t("slices")}`,
      `${whole(sum((source) => source.meta.counters))} ${t("counter samples")}`,
    ];
    const overlapping = sum((source) => source.meta.overlapping);
    if (overlapping) parts.push(`${whole(overlapping)} ${t("overlapping slices shown on extra rows")}`);
    parts.push(`⟷ ${length(this.timeline.view.length)}`);
    if (range) parts.push(`▭ ${length(range.to - range.from)}`);
    if (this.session?.thinned) parts.push(this.session.thinned);
    const { step } = this.timeline.origin;
    const origin = step === null ? t("since the first event") : t("since start of step {step}", { step });
    if (this.origin.textContent !== origin) this.origin.textContent = origin;
    const text = parts.join("  ·  ");
    if (this.status.textContent !== text) this.status.textContent = text;
  }

  private notice(text: string): void {
    this.message.textContent = text;
    this.live.textContent = text;
    clearTimeout(this.noticeTimer);
    this.noticeTimer = window.setTimeout(() => {
      if (this.message.textContent === text) this.message.textContent = "";
    }, 6000);
  }

  private hover(picked: Picked | null, x: number, y: number): void {
    const lane = !picked && y > 0 ? this.timeline.laneAt(y) : null;
    const lines: (Node | string)[] = [];
    if (picked) {
      if (picked.count > 1) lines.push(h("div", { class: "trace-tip-merged" }, mergedText(picked.count)));
      lines.push(h("b", {}, picked.source.nameOf(picked.name)));
      if (picked.count === 1) lines.push(h("div", {}, length(picked.dur)));
      else lines.push(h("div", {}, t("{length}, {share} % covered", { length: length(picked.dur), share: grouped(picked.busy * 100) })));
      lines.push(h("small", {}, `${this.timeline.timeText(picked.start + picked.source.place)} · ${rawUs(picked.source.meta.base_ns, picked.start)} us`));
    } else if (lane?.kind === "counter") {
      const sample = pickSample(lane.source, lane.track!.id, this.timeline.timeAt(x), this.timeline.nsPerPixel);
      const unit = unitOf(lane.track!);
      if (sample) {
        lines.push(h("b", {}, `${grouped(sample.last)} ${unit}`));
        if (sample.count > 1) lines.push(h("div", {}, `${grouped(sample.min)} … ${grouped(sample.max)} ${unit} (${t("{count} samples", { count: whole(sample.count) })})`));
      }
    }
    this.tip.hidden = !lines.length;
    if (!lines.length) return;
    this.tip.replaceChildren(...lines);
    const left = Math.min(x + 14, this.timeline.width - 20 - Math.min(420, this.tip.offsetWidth));
    const top = y + 18 + this.tip.offsetHeight > this.timeline.height ? y - this.tip.offsetHeight - 8 : y + 18;
    this.tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(0, top)}px)`;
  }

  private async openMenu(picked: Picked | null, lane: Lane | null, x: number, y: number): Promise<void> {
    const { session, scene } = this;
    if (picked && (scene.selected?.id !== picked.id || scene.selected.source !== picked.source)) await session.select(picked.source, picked.id, false, picked.count);
    const detail = picked ? session.detail : null;
    const flows = (direction: "in" | "out"): boolean => detail?.flows.some((flow) => flow.direction === direction && flow.id !== null) ?? false;
    const ofSlice: MenuItem[] = detail ? [
      { text: t("Follow launch"), key: "g", testid: "menu-follow", act: flows("out") ? () => session.follow(true) : null },
      ...(flows("in") ? [{ text: t("Back to the launch"), key: "Shift+G", testid: "menu-back", act: () => session.follow(false) }] : []),
      { text: t("Select same name"), testid: "menu-same", act: () => this.sameName(detail.name) },
      { text: t("Show in table"), testid: "menu-table", act: this.panel.tableOf(detail) },
    ] : [];
    const track = lane && (lane.kind === "slices" || lane.kind === "counter") ? lane : null;
    const ofTrack: MenuItem[] = [
      ...(track ? [{ text: track.pinned ? t("Unpin this track") : t("Pin this track"), key: "p", testid: "menu-pin", act: () => session.pin(track.key) }] : []),
      ...(lane && lane.kind !== "rank" ? [{ text: t("Hide this track"), key: "h", testid: "menu-hide", act: () => session.hide(lane.key) }] : []),
      ...(session.groupTracks().length ? [{ text: t("Pin communication group"), testid: "menu-group", act: () => session.pinGroups() }] : []),
    ];
    this.menu.open(x, y, [ofSlice, ofTrack, [{ text: t("Copy link"), key: "y", testid: "menu-link", act: () => void this.copyLink() }]]);
  }

  private sameName(name: string): void {
    this.bar.setOptions(name, "cw");
    this.panel.show("search");
    void this.bar.findNow();
  }

  private async copyLink(): Promise<void> {
    this.write();
    await copyText(linkHere());
    this.notice(t("Link copied"));
  }

  /** Shift+F10 and the menu key: at the selected slice. */
  private readonly menuKey = (): void => {
    const { selected } = this.scene;
    if (!selected) return;
    const box = this.timeline.surfaces.body.getBoundingClientRect();
    const from = Math.max(0, Math.min(this.timeline.width - 10, this.timeline.xOf(selected.start + selected.source.place)));
    const lane = this.timeline.layout.byTrack.get(trackKey(selected.source, selected.track)) ?? null;
    const y = this.timeline.rowMiddle(selected.source, selected.track, selected.row) ?? 0;
    void this.openMenu({ source: selected.source, row: selected.row, id: selected.id, name: 0, start: selected.start, dur: selected.dur, count: 1, busy: 1 }, lane, box.left + from, box.top + y + 8);
  };

  private keyActions(): ConstructorParameters<typeof Keys>[1] {
    const { session } = this;
    const withLane = (act: (key: string, kind: string) => void) => () => {
      const lane = session.laneMeant();
      if (lane) act(lane.key, lane.kind);
    };
    return {
      moved: () => session.moved(),
      fit: () => session.fit(),
      whole: () => session.whole(),
      back: () => session.back(),
      zoomToRange: () => session.zoomToRange(),
      rangeOfSlice: () => session.rangeOfSlice(),
      mark: () => session.mark(),
      next: (direction, same) => {
        if (this.scene.selected) void session.next(direction, same);
        else this.list.first();
      },
      gap: (direction) => void session.gap(direction),
      details: () => {
        this.panel.show("detail");
        this.panel.focus();
      },
      follow: (forward) => session.follow(forward),
      pin: withLane((key, kind) => (kind === "slices" || kind === "counter") && session.pin(key)),
      hide: withLane((key, kind) => kind !== "rank" && session.hide(key)),
      fold: withLane((key, kind) => kind !== "path" && session.fold(key)),
      panel: () => this.panel.toggle(),
      align: (end) => session.align(end),
      search: () => {
        this.bar.search.focus();
        this.bar.search.select();
      },
      hit: (direction) => session.hit(direction),
      menu: () => this.menuKey(),
      clear: () => {
        if (this.scene.range) session.setRange(null, true);
        else if (this.scene.selected) session.clearSelection();
        else if (this.bar.search.value) {
          this.bar.search.value = "";
          void session.search(this.bar.options());
        } else return false;
        return true;
      },
    };
  }

  private split(splitter: HTMLElement, panel: HTMLElement): void {
    let tall = 240;
    const set = (value: number): void => {
      tall = Math.max(80, Math.min(this.root.clientHeight - 200, value));
      panel.style.height = `${tall}px`;
      splitter.setAttribute("aria-valuenow", String(Math.round(tall)));
    };
    panel.style.height = `${tall}px`;
    splitter.addEventListener("pointerdown", (event) => splitter.setPointerCapture(event.pointerId));
    splitter.addEventListener("pointermove", (event) => {
      if (splitter.hasPointerCapture(event.pointerId)) set(panel.getBoundingClientRect().bottom - event.clientY);
    });
    splitter.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
      event.preventDefault();
      event.stopPropagation();
      set(tall + (event.key === "ArrowUp" ? 20 : -20));
    });
  }

  private picture(): void {
    const { body, top } = this.timeline.surfaces;
    const sheet = h("canvas", { width: body.width, height: body.height + top.height });
    const context = sheet.getContext("2d")!;
    context.drawImage(top, 0, 0);
    context.drawImage(body, 0, top.height);
    sheet.toBlob((blob) => {
      if (!blob) return;
      const url = URL.createObjectURL(blob);
      const link = h("a", { href: url, download: "trace.png" });
      link.click();
      URL.revokeObjectURL(url);
    });
  }

  // --- test hooks

  private expose(): void {
    const { timeline, scene, session } = this;
    const hooks = {
      /** Counts of the last picture and of the work behind it. */
      stats: () => ({
        ready: this.root.dataset["ready"] === "true",
        firstPictureMs: this.firstPicture - this.mounted,
        firstPictureAfterReadyMs: this.firstPicture - this.readyAt,
        window: [timeline.view.from, timeline.view.to],
        ...timeline.painter.counts,
        labels: timeline.painter.labels.count,
        tiles: scene.sources.reduce((sum, source) => sum + source.slices.counts.tiles + source.counters.counts.tiles, 0),
        tileBytes: scene.sources.reduce((sum, source) => sum + source.slices.counts.bytes + source.counters.counts.bytes, 0),
        requests: scene.sources.reduce((sum, source) => sum + source.slices.counts.requests + source.counters.counts.requests, 0),
        flows: scene.flows.length,
        selectedFlows: scene.selectedFlows.length,
        selected: scene.selected?.id ?? null,
        /** The selected slice on the canvas (CSS pixels) and whether its row is in view. */
        selectedAt: scene.selected && {
          left: timeline.xOf(scene.selected.start + scene.selected.source.place),
          right: timeline.xOf(scene.selected.start + scene.selected.dur + scene.selected.source.place),
          y: timeline.rowMiddle(scene.selected.source, scene.selected.track, scene.selected.row),
        },
        canvas: { width: timeline.width, height: timeline.height, covered: timeline.covered, scroll: timeline.scrollTop },
        hovered: timeline.hovered ? timeline.hovered.source.nameOf(timeline.hovered.name) : null,
        lanes: timeline.visible().map((lane) => ({ key: lane.key, kind: lane.kind, label: lane.label, y: timeline.laneTop(lane), height: lane.height, folded: lane.folded })),
      }),
      /** Slices drawn of each row: "capture:row" to count. */
      drawnByRow: () => Object.fromEntries(timeline.painter.byRow),
      frames: () => ({ times: [...timeline.frames.times], draws: [...timeline.frames.draws] }),
      clearFrames: () => timeline.frames.clear(),
      setWindow: (from: number, to: number) => {
        timeline.view.set(from, to);
        this.root.dataset["ready"] = "false";
        session.moved();
        timeline.draw();
      },
      /** Where a slice is on the canvas, CSS pixels. */
      placeOf: (row: number, time: number, source = 0) => {
        const own = scene.sources.find((one) => one.number === source);
        return own ? { x: timeline.xOf(time + own.place), y: timeline.rowMiddle(own, null, row) } : null;
      },
      trackKey: (track: number) => trackKey(scene.sources[0]!, track),
    };
    window.__stepscope = { ...window.__stepscope, trace: hooks };
    if (new URLSearchParams(window.location.search).get("perf") !== "1" && !/[?&]perf=1/.test(window.location.hash)) return;
    const memory = (performance as { memory?: { usedJSHeapSize: number } }).memory;
    Object.defineProperty(window, "__viewerPerf", {
      configurable: true,
      get: () => ({ ...hooks.frames(), rects: timeline.painter.counts.rects, tiles: hooks.stats().tiles, heap: memory?.usedJSHeapSize ?? null, firstPictureMs: hooks.stats().firstPictureMs }),
    });
  }
}
