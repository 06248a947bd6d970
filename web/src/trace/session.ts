// SPDX-License-Identifier: Apache-2.0
// What a reader does with the timeline: selecting, walking, marking, searching, aligning. Asks the server and tells the panels.

import { ApiError } from "../api";
import type { Mark } from "./canvas/draw";
import { type Lane, trackKey } from "./canvas/layout";
import type { Arrows, Brief, Detail, Found } from "./data/model";
import type { Picked } from "./canvas/pick";
import type { Source } from "./data/source";
import { fittedTo } from "./canvas/steps";
import type { Chosen, Flow, Range, Scene, Timeline } from "./canvas/timeline";
import { t } from "./words";

const MOST_ARROWS = 2000;
const MOST_HITS = 1000;
const SETTLED_MS = 150;
const SEEN = 1 / 400; // of the window: shorter gaps are left out when walking, and what is shorter is zoomed to (viewport.ts)
const EDGE = 12; // px of a row that must be in view above and below its middle
const MARK_COLOURS = ["#d9480f", "#0b7285", "#862e9c", "#2b8a3e", "#a61e4d"];

export interface Hit extends Brief {
  readonly source: Source;
}

export interface SearchOptions {
  readonly text: string;
  readonly regex: boolean;
  readonly case: boolean;
  readonly word: boolean;
}

export interface SearchResult {
  readonly options: SearchOptions;
  readonly count: number;
  readonly names: number;
  readonly hits: readonly Hit[];
  readonly at: number;
}

export interface Listener {
  /** `walking`: the reader goes through a list in the panel, which is to stay. */
  detail(chosen: Chosen | null, detail: Detail | null, merged: number, walking: boolean): void;
  range(range: Range | null): void;
  searched(result: SearchResult | null): void;
  marks(): void;
  notice(text: string): void;
  changed(): void;
}

export class Session {
  detail: Detail | null = null;
  result: SearchResult | null = null;
  categories = new Set<string>();
  insideOnly = false;
  thinned = "";
  private selecting = 0;
  private searching = 0;
  private flowTimer = 0;
  private flowAsk = 0;
  private readonly stop = new AbortController();

  constructor(readonly timeline: Timeline, readonly scene: Scene, private readonly hear: Listener) {}

  destroy(): void {
    this.stop.abort();
    clearTimeout(this.flowTimer);
  }

  private problem(what: unknown): void {
    if (this.stop.signal.aborted) return;
    this.hear.notice(what instanceof ApiError ? [what.message, what.detail, what.hint].filter(Boolean).map((one) => t(one)).join(" — ") : String(what));
  }

  // --- selection

  selectPicked(picked: Picked | null): void {
    if (!picked) this.clearSelection();
    else void this.select(picked.source, picked.id, false, picked.count);
  }

  clearSelection(): void {
    this.selecting++;
    this.scene.selected = null;
    this.scene.selectedFlows = [];
    this.detail = null;
    this.hear.detail(null, null, 1, true);
    this.timeline.draw();
  }

  async select(source: Source, id: number, reveal: boolean, merged = 1, walking = false): Promise<void> {
    await this.choose(source, { id }, reveal, merged, walking);
  }

  /** By id, or by the row of a table (`table`, `row`). */
  async choose(source: Source, query: Record<string, string | number>, reveal: boolean, merged = 1, walking = false): Promise<void> {
    const turn = ++this.selecting;
    try {
      const detail = await source.api.get<Detail>("trace/slice", query, { signal: this.stop.signal });
      if (turn !== this.selecting) return;
      const chosen = { source, id: detail.id, row: detail.row, track: detail.track, start: detail.start_ns, dur: detail.duration_ns };
      if (this.scene.selected && (this.scene.selected.id !== chosen.id || this.scene.selected.source !== source)) this.scene.reference = this.scene.selected;
      this.scene.selected = chosen;
      this.detail = detail;
      const own = { source, track: detail.track, row: detail.row };
      this.scene.selectedFlows = detail.flows.map((flow): Flow => {
        const other = { source, track: flow.track, row: flow.row ?? null, time: flow.start_ns };
        return flow.direction === "out"
          ? { from: { ...own, time: detail.start_ns }, to: other, category: flow.category }
          : { from: other, to: { ...own, time: detail.start_ns }, category: flow.category };
      });
      // The panel opens first: what is brought into view is so beside the panel, not below it.
      this.hear.detail(chosen, detail, merged, walking);
      this.reveal(chosen, reveal);
      this.timeline.draw();
    } catch (what) {
      this.problem(what);
    }
  }

  /**
   * Brings a slice into view: folds, scroll, and the time window. For a reader who clicked, or a link that names its window
   * (`move` false), folds stay, and so does the window unless the slice is outside of it.
   */
  reveal(chosen: Chosen, move = true): void {
    const { timeline } = this;
    const from = chosen.start + chosen.source.place;
    const to = from + chosen.dur;
    if (move || !this.inWindow(chosen)) {
      timeline.view.keep();
      timeline.view.reveal(from, to);
    }
    const process = chosen.source.meta.tracks[chosen.track]?.process ?? -1;
    const closed = [`${chosen.source.number}`, `${chosen.source.number}.p${process}`, trackKey(chosen.source, chosen.track)];
    const { folded, hidden, filter } = this.scene.choice;
    const filtered = filter !== "" && !timeline.layout.byTrack.has(trackKey(chosen.source, chosen.track));
    if (move && (filtered || closed.some((key) => folded.has(key) || hidden.has(key))))
      this.arrange({
        folded: new Set([...folded].filter((key) => !closed.includes(key))), hidden: new Set([...hidden].filter((key) => !closed.includes(key))),
        ...(filtered ? { filter: "" } : {}),
      });
    this.scrollTo(chosen);
    this.moved();
  }

  private inWindow({ source, start, dur }: Chosen): boolean {
    const { view } = this.timeline;
    return start + source.place <= view.to && start + dur + source.place >= view.from;
  }

  /** Whether the row of a slice is between the headings at the top and the lower edge; null when its track is not shown. */
  rowInView(chosen: Chosen): boolean | null {
    const { timeline } = this;
    const middle = timeline.rowMiddle(chosen.source, chosen.track, chosen.row);
    if (middle === null) return null;
    if (timeline.layout.byTrack.get(trackKey(chosen.source, chosen.track))?.pinned) return true;
    return middle >= timeline.covered + EDGE && middle <= timeline.height - EDGE;
  }

  scrollTo(chosen: Chosen): void {
    const { timeline } = this;
    if (this.rowInView(chosen) !== false) return;
    const middle = timeline.rowMiddle(chosen.source, chosen.track, chosen.row)!;
    timeline.surfaces.scroll.scrollTop += middle - (timeline.covered + timeline.height) / 2;
  }

  async next(direction: 1 | -1, same: boolean): Promise<void> {
    const selected = this.scene.selected;
    if (!selected) return;
    try {
      const { id } = await selected.source.api.get<{ id: number | null }>(
        "trace/next", { id: selected.id, dir: direction, same: same ? 1 : 0 }, { signal: this.stop.signal },
      );
      if (id === null) this.hear.notice(t(direction > 0 ? "That was the last one." : "That was the first one."));
      else await this.select(selected.source, id, true);
    } catch (what) {
      this.problem(what);
    }
  }

  /** Idle time of the device, of those that can be seen at this zoom: after or before the selected slice, else from the window's edge. */
  async gap(direction: 1 | -1): Promise<void> {
    const { view } = this.timeline;
    const source = this.scene.selected?.source ?? this.scene.sources[0];
    if (!source) return;
    const edge = direction > 0 ? view.from : view.to;
    const at = this.scene.selected?.start ?? Math.max(-1, Math.floor(edge - source.place) - direction);
    try {
      const { id } = await source.api.get<{ id: number | null }>(
        "trace/next", { gap: 1, at, dir: direction, least: Math.ceil(view.length * SEEN) }, { signal: this.stop.signal },
      );
      if (id === null) this.hear.notice(t("No further gap that can be seen at this zoom; zoom in for shorter ones."));
      else await this.select(source, id, true);
    } catch (what) {
      this.problem(what);
    }
  }

  follow(forward: boolean): void {
    const selected = this.scene.selected;
    const flow = this.detail?.flows.find((one) => one.direction === (forward ? "out" : "in") && one.id !== null);
    if (!selected) return;
    if (!flow || flow.id === null) this.hear.notice(t(forward ? "No flow leaves this slice." : "No flow enters this slice."));
    else void this.select(selected.source, flow.id, true);
  }

  // --- window

  moved(): void {
    this.hear.changed();
    clearTimeout(this.flowTimer);
    if (this.categories.size) this.flowTimer = window.setTimeout(() => void this.loadFlows(), SETTLED_MS);
  }

  fit(): void {
    const { view } = this.timeline;
    const { selected, range } = this.scene;
    view.keep();
    if (selected) view.fit(selected.start + selected.source.place, selected.start + selected.dur + selected.source.place);
    else if (range) view.fit(range.from, range.to);
    else view.whole();
    this.moved();
    this.timeline.draw();
  }

  whole(): void {
    this.timeline.view.keep();
    this.timeline.view.whole();
    this.moved();
    this.timeline.draw();
  }

  /** The first capture's steps, or one of them, with what runs of it on the device; false when there are none. */
  showSteps(at: number | null): boolean {
    const [first] = this.scene.sources;
    const steps = first?.meta.steps ?? [];
    const window = first ? fittedTo(first, at === null ? steps : steps.slice(at, at + 1)) : null;
    if (window) this.timeline.view.set(...window);
    return window !== null;
  }

  /** As a reader asks for it: can be undone. */
  goToStep(at: number | null): void {
    this.timeline.view.keep();
    if (!this.showSteps(at)) return;
    this.moved();
    this.timeline.draw();
  }

  /** Pins what the communication groups of all shown captures did as a whole, below each other; and back. */
  pinGroups(): void {
    const keys = this.groupTracks();
    const { pinned } = this.scene.choice;
    const all = keys.every((key) => pinned.includes(key));
    this.arrange({ pinned: all ? pinned.filter((key) => !keys.includes(key)) : [...pinned, ...keys.filter((key) => !pinned.includes(key))] });
  }

  groupTracks(): string[] {
    return this.scene.sources.flatMap((source) =>
      source.meta.tracks.filter((track) => source.meta.processes[track.process]?.group === "communication" && /^group/i.test(track.label)).map((track) => trackKey(source, track.id)));
  }

  back(): void {
    if (!this.timeline.view.back()) return;
    this.moved();
    this.timeline.draw();
  }

  zoomToRange(): void {
    const { range } = this.scene;
    if (!range) return;
    this.timeline.view.keep();
    this.timeline.view.set(range.from, range.to);
    this.moved();
    this.timeline.draw();
  }

  // --- range and marks

  setRange(range: Range | null, done: boolean): void {
    this.scene.range = range;
    if (done) {
      this.hear.range(range);
      if (this.insideOnly) this.moved();
      this.hear.changed();
    }
    this.timeline.draw();
  }

  rangeOfSlice(): void {
    const { selected, range } = this.scene;
    if (!selected) return;
    const from = selected.start + selected.source.place;
    const to = from + Math.max(1, selected.dur);
    const on = range !== null && range.from === from && range.to === to;
    this.setRange(on ? null : { from, to, tracks: null }, true);
  }

  mark(): void {
    const { range, marks } = this.scene;
    const colour = MARK_COLOURS[marks.length % MARK_COLOURS.length]!;
    const { timeline } = this;
    const at = timeline.pointer ? timeline.timeAt(timeline.pointer.x) : this.scene.selected ? this.scene.selected.start + this.scene.selected.source.place : null;
    if (range) this.setMarks([...marks, { from: range.from, to: range.to, name: "", colour }]);
    else if (at !== null) this.setMarks([...marks, { from: Math.round(at), to: null, name: "", colour }]);
  }

  setMarks(marks: Mark[]): void {
    this.scene.marks = marks;
    this.hear.marks();
    this.hear.changed();
    this.timeline.draw();
  }

  // --- tracks

  arrange(change: Partial<Scene["choice"]>): void {
    this.scene.choice = { ...this.scene.choice, ...change };
    this.timeline.relayout();
    this.hear.changed();
  }

  fold(key: string): void {
    const folded = new Set(this.scene.choice.folded);
    if (!folded.delete(key)) folded.add(key);
    this.arrange({ folded });
  }

  hide(key: string): void {
    this.arrange({ hidden: new Set([...this.scene.choice.hidden, key]) });
  }

  pin(key: string): void {
    const { pinned } = this.scene.choice;
    this.arrange({ pinned: pinned.includes(key) ? pinned.filter((one) => one !== key) : [...pinned, key] });
  }

  /** Moves a process or a track past its neighbour. */
  shiftLane(lane: Lane, by: 1 | -1): void {
    const { pinned, order } = this.scene.choice;
    if (lane.pinned) return this.arrange({ pinned: swapped(pinned, lane.key, by) });
    const siblings = this.timeline.layout.lanes.filter(
      (one) => one.source === lane.source && (lane.track ? one.track?.process === lane.track.process : one.kind === lane.kind),
    );
    const keys = swapped(siblings.map((one) => one.key), lane.key, by);
    this.arrange({ order: [...order.filter((key) => !keys.includes(key)), ...keys] });
  }

  /** The lane that a key press means: under the pointer, else that of the selected slice. */
  laneMeant(): Lane | null {
    const { pointer } = this.timeline;
    const under = pointer ? this.timeline.laneAt(pointer.y) : null;
    if (under) return under;
    const { selected } = this.scene;
    return selected ? (this.timeline.layout.byTrack.get(trackKey(selected.source, selected.track)) ?? null) : null;
  }

  /** Moves the selected slice's capture so that the slice begins (or ends) with the one selected before. */
  align(end: boolean): void {
    const { selected, reference } = this.scene;
    if (!selected || !reference) return this.hear.notice(t("Select the reference slice first, then the slice to align."));
    if (selected.source === reference.source) return this.hear.notice(t("Both slices are of the same capture; nothing to align."));
    const mine = selected.start + (end ? selected.dur : 0) + selected.source.place;
    const other = reference.start + (end ? reference.dur : 0) + reference.source.place;
    selected.source.shift += other - mine;
    this.placed();
  }

  /** Moves every other capture so that its slice of the same name, and the same turn of it, begins (or ends) with the selected one. */
  async alignAll(end: boolean): Promise<void> {
    const { selected, sources } = this.scene;
    const name = this.detail?.name;
    if (!selected || name === undefined) return this.hear.notice(t("Select a slice first, a communication operator for instance."));
    const query = { q: `^${escaped(name)}$`, mode: "regex", case: true, limit: 5000, px: 1 };
    try {
      const [own, ...others] = await Promise.all(
        [selected.source, ...sources.filter((source) => source !== selected.source)].map(async (source) => ({
          source, hits: (await source.api.get<Found>("trace/search", query, { signal: this.stop.signal })).hits,
        })),
      );
      const turn = Math.max(0, own!.hits.findIndex((hit) => hit.id === selected.id));
      const goal = selected.start + (end ? selected.dur : 0) + selected.source.place;
      const missing: string[] = [];
      for (const { source, hits } of others) {
        const hit = hits[turn];
        if (hit) source.shift += goal - (hit.start_ns + (end ? hit.duration_ns : 0) + source.place);
        else missing.push(source.label);
      }
      if (missing.length) this.hear.notice(t("No such slice in {names}; left where it is.", { names: missing.join(", ") }));
      this.placed();
    } catch (what) {
      this.problem(what);
    }
  }

  /** Puts captures elsewhere; the window goes along with a selected slice that would be lost from view. */
  place(put: () => void): void {
    const { selected } = this.scene;
    const seen = selected !== null && this.inWindow(selected);
    const before = selected?.source.place ?? 0;
    put();
    this.placed();
    if (seen && !this.inWindow(selected)) this.timeline.view.pan(selected.source.place - before);
  }

  /** The captures' places changed: the whole timeline is what they all cover, and hits are in the order of their times. */
  placed(): void {
    const { view } = this.timeline;
    view.first = Math.min(...this.scene.sources.map((source) => source.place));
    view.last = Math.max(...this.scene.sources.map((source) => source.place + Math.max(1, source.meta.length_ns)));
    if (this.result) {
      const { hits, at } = this.result;
      const sorted = inTime(hits);
      this.result = { ...this.result, hits: sorted, at: at < 0 ? at : sorted.indexOf(hits[at]!) };
      this.hear.searched(this.result);
    }
    this.timeline.relayout();
    this.moved();
  }

  // --- flows

  setCategories(categories: Set<string>): void {
    this.categories = categories;
    if (!categories.size) {
      this.scene.flows = [];
      this.thinned = "";
      this.timeline.draw();
    } else void this.loadFlows();
    this.hear.changed();
  }

  async loadFlows(): Promise<void> {
    const turn = ++this.flowAsk;
    const { view } = this.timeline;
    const { range } = this.scene;
    const inside = this.insideOnly && range !== null;
    const window = inside ? range : view;
    const flows: Flow[] = [];
    let count = 0;
    let thinned = false;
    try {
      for (const source of this.scene.sources) {
        const cats = source.meta.flows.map((flow) => flow.category).filter((category) => this.categories.has(category));
        const from = Math.max(0, Math.floor(window.from - source.place));
        const to = Math.ceil(window.to - source.place);
        if (!cats.length || to <= from) continue;
        const answer = await source.api.get<Arrows>(
          "trace/flows", { cats: cats.join(","), from, to, limit: MOST_ARROWS, inside: inside ? 1 : 0 }, { signal: this.stop.signal },
        );
        if (turn !== this.flowAsk) return;
        count += answer.count;
        thinned ||= answer.thinned;
        const a = answer.arrows;
        a.category.forEach((category, i) =>
          flows.push({
            category: answer.category[category] ?? "",
            from: { source, track: a.from_track[i] ?? null, row: a.from_row[i] ?? null, time: a.from_ns[i]! },
            to: { source, track: a.to_track[i] ?? null, row: a.to_row[i] ?? null, time: a.to_ns[i]! },
          }),
        );
      }
      this.scene.flows = flows;
      this.thinned = thinned ? t("{shown} of {all} arrows drawn; zoom in for the others", { shown: flows.length, all: count }) : "";
      this.hear.changed();
      this.timeline.draw();
    } catch (what) {
      this.problem(what);
    }
  }

  // --- search

  async search(options: SearchOptions): Promise<void> {
    const turn = ++this.searching;
    if (!options.text) {
      this.result = null;
      this.scene.hits = null;
      this.recolour(null);
      this.hear.searched(null);
      return;
    }
    const query = { q: options.text, mode: options.regex ? "regex" : "text", case: options.case, word: options.word, limit: MOST_HITS, px: 1000 };
    try {
      const answers = await Promise.all(
        this.scene.sources.map((source) => source.api.get<Found>("trace/search", query, { signal: this.stop.signal })),
      );
      if (turn !== this.searching) return;
      const hits = answers.flatMap((answer, i) => answer.hits.map((hit): Hit => ({ ...hit, source: this.scene.sources[i]! })));
      const sum = (of: (answer: Found) => number): number => answers.reduce((total, answer) => total + of(answer), 0);
      this.result = { options, count: sum((answer) => answer.count), names: sum((answer) => answer.names), hits: inTime(hits), at: -1 };
      const first = answers[0]!.density;
      const place = this.scene.sources[0]!.place;
      this.scene.hits = { from: first.from + place, to: first.to + place, counts: first.counts };
      this.recolour(matcher(options));
      this.hear.searched(this.result);
    } catch (what) {
      this.problem(what);
    }
  }

  recolour(matches: ((name: string) => boolean) | null, sources: readonly Source[] = this.scene.sources): void {
    for (const source of sources) source.paintNames(this.scene.theme, matches);
    this.timeline.draw();
  }

  /** Colours again, for another theme or after more names of one capture came. */
  repaint(source?: Source): void {
    this.recolour(this.result ? matcher(this.result.options) : null, source && [source]);
  }

  longestHit(): void {
    const hits = this.result?.hits ?? [];
    const at = hits.reduce((best, hit, i) => (best < 0 || hit.duration_ns > hits[best]!.duration_ns ? i : best), -1);
    if (at >= 0) this.hit(1, at, false);
  }

  hit(direction: 1 | -1, at?: number, walking = true): void {
    const { result } = this;
    if (!result?.hits.length) return;
    let index = at ?? result.at + direction;
    if (at === undefined && result.at < 0) {
      const { view } = this.timeline;
      const inView = result.hits.findIndex((hit) => hit.start_ns + hit.source.place >= view.from);
      index = Math.max(0, inView);
    }
    index = (index + result.hits.length) % result.hits.length;
    this.result = { ...result, at: index };
    const hit = result.hits[index]!;
    this.hear.searched(this.result);
    void this.select(hit.source, hit.id, true, 1, walking);
  }
}

const inTime = (hits: readonly Hit[]): Hit[] => [...hits].sort((a, b) => a.start_ns + a.source.place - b.start_ns - b.source.place);

const escaped = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

function swapped(keys: readonly string[], key: string, by: 1 | -1): string[] {
  const moved = [...keys];
  const at = moved.indexOf(key);
  const other = moved[at + by];
  if (at >= 0 && other !== undefined) [moved[at], moved[at + by]] = [other, key];
  return moved;
}

/** The same rule as the server's, on names that are here. */
function matcher({ text, regex, case: exact, word }: SearchOptions): (name: string) => boolean {
  try {
    const body = regex ? text : escaped(text);
    const pattern = new RegExp(word ? `\\b(?:${body})\\b` : body, exact ? "u" : "iu");
    return (name) => pattern.test(name);
  } catch {
    return () => true; // the server's dialect knows more; then nothing steps back
  }
}
