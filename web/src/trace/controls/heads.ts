// SPDX-License-Identifier: Apache-2.0
// The column of track names: only those in view are elements, so a thousand ranks cost no more than one.

import { button, h } from "./dom";
import type { Lane } from "../canvas/layout";
import type { Clock } from "../data/clocks";
import type { Track } from "../data/model";
import { grouped, length, whole } from "../numbers";
import type { Timeline } from "../canvas/timeline";
import { t } from "../words";

export interface HeadActions {
  fold(lane: Lane): void;
  pin(lane: Lane): void;
  hide(lane: Lane): void;
  move(lane: Lane, by: 1 | -1): void;
}

export class Heads {
  private readonly heads = new Map<string, { element: HTMLElement; lane: Lane; top: number; clip: number }>();

  constructor(private readonly root: HTMLElement, private readonly timeline: Timeline, private readonly actions: HeadActions) {}

  /** Puts the headings where the canvas has its lanes; called after each draw. */
  place(): void {
    const stuck = new Map(this.timeline.stuck().map(({ lane, top }) => [lane, top]));
    const inView = this.timeline.visible();
    const lanes = [...inView.filter((lane) => lane.pinned), ...[...stuck.keys()].filter((lane) => !inView.includes(lane)), ...inView.filter((lane) => !lane.pinned)];
    const seen = new Set(lanes.map(keyOf));
    for (const [key, { element }] of this.heads)
      if (!seen.has(key)) {
        element.remove();
        this.heads.delete(key);
      }
    const clip = this.timeline.layout.pinnedHeight;
    let next = this.root.firstElementChild;
    for (const lane of lanes) {
      const key = keyOf(lane);
      let head = this.heads.get(key);
      if (!head || head.lane.folded !== lane.folded || head.lane.height !== lane.height) {
        const focused = head?.element.contains(document.activeElement);
        const element = this.make(lane);
        if (head) head.element.replaceWith(element);
        else this.root.insertBefore(element, next);
        if (head?.element === next) next = element;
        if (focused) element.querySelector("button")?.focus();
        this.heads.set(key, (head = { element, lane, top: NaN, clip: NaN }));
      }
      // The order of the elements is the order of the lanes: the tab key follows it.
      if (head.element === next) next = next.nextElementSibling;
      else if (head.element.nextElementSibling !== next) {
        const focused = head.element.contains(document.activeElement) ? (document.activeElement as HTMLElement) : null;
        this.root.insertBefore(head.element, next);
        focused?.focus();
      }
      const top = stuck.get(lane) ?? this.timeline.laneTop(lane);
      head.element.classList.toggle("trace-head-stuck", stuck.has(lane));
      if (top === head.top && clip === head.clip) continue;
      head.top = top;
      head.clip = clip;
      const cut = lane.pinned ? 0 : Math.max(0, clip - top);
      const { style } = head.element;
      style.transform = `translateY(${top}px)`;
      // Below the pinned lanes nothing shows through, and the name of a tall track stays in sight.
      style.clipPath = cut ? `inset(${cut}px 0 0 0)` : "";
      style.paddingTop = cut ? `${Math.max(0, Math.min(cut, lane.height - 24))}px` : "";
    }
  }

  /** Writes how busy each lane is in the window. */
  showBusy(): void {
    for (const { element, lane } of this.heads.values()) {
      const text = busyText(lane);
      const own = element.querySelector(".trace-busy");
      if (own && own.textContent !== text) own.textContent = text;
    }
  }

  clear(): void {
    this.root.replaceChildren();
    this.heads.clear();
  }

  private make(lane: Lane): HTMLElement {
    if (lane.kind === "path")
      return h("div", { class: "trace-head trace-head-path", style: `height:${lane.height}px`, "data-key": lane.key },
        h("span", { class: "trace-name", title: t("What the end of the run depended on: shorten anything else and nothing ends earlier.") }, t("Critical path")),
        h("span", { class: "trace-busy" }, busyText(lane)),
        h("span", { class: "trace-tools" }, button("✕", `${t("Hide (H)")}: ${t("Critical path")}`, () => this.actions.hide(lane))));
    const group = lane.kind === "rank" || lane.kind === "process";
    const fold = button(lane.folded ? "▸" : "▾", `${lane.folded ? t("Unfold") : t("Fold")} ${lane.label}`, () => this.actions.fold(lane), {
      "aria-expanded": String(!lane.folded), class: "trace-fold",
    });
    const tools = h("span", { class: "trace-tools" });
    if (lane.kind !== "rank")
      tools.append(button("↑", `${t("Move up")}: ${lane.label}`, () => this.actions.move(lane, -1)), button("↓", `${t("Move down")}: ${lane.label}`, () => this.actions.move(lane, 1)));
    if (!group) tools.append(button(lane.pinned ? "◆" : "◇", `${lane.pinned ? t("Unpin (P)") : t("Pin to top (P)")}: ${lane.label}`, () => this.actions.pin(lane)));
    if (lane.kind !== "rank") tools.append(button("✕", `${t("Hide (H)")}: ${lane.label}`, () => this.actions.hide(lane)));
    return h(
      "div",
      { class: `trace-head trace-head-${lane.kind}`, style: `height:${lane.height}px`, "data-key": lane.key },
      fold,
      h("span", { class: "trace-name", title: describe(lane) }, lane.kind === "rank" && !lane.label.includes(": ") ? `Worker ${lane.label}` : lane.label, lane.process?.badge && lane.kind === "process" ? h("b", { class: "trace-badge" }, lane.process.badge) : null),
      lane.kind === "rank" && lane.source.clock ? clockOf(lane.source.clock) : null,
      lane.kind === "process" && lane.folded ? h("span", { class: "trace-tracks" }, `${lane.tracks} ${t("tracks")}`) : null,
      lane.kind === "counter" && !lane.folded ? h("span", { class: "trace-scale" }, scaleText(lane)) : null,
      lane.kind === "process" || lane.kind === "slices" ? h("span", { class: "trace-busy", title: t("Share of the window in which something runs") }, busyText(lane)) : null,
      tools,
    );
  }
}

/** How far the clock of a rank was off, and how sure that is. */
function clockOf({ offset, sigma, reference }: Clock): HTMLElement {
  const text = reference ? t("clock reference") : offset === null ? t("clock not aligned") : `${length(offset)} ± ${length(sigma)}`;
  const about = reference
    ? t("Offsets of the other ranks are relative to this one.")
    : t(offset === null ? "Too few calls are shared with other ranks; it stands where its own clock puts it." : "How far its clock is ahead of the reference; the picture is without that.");
  return h("span", { class: "trace-clock", title: about, "data-testid": "rank-clock" }, text);
}

const keyOf = (lane: Lane): string => `${lane.pinned ? "pin" : ""}${lane.key}`;

function busyText(lane: Lane): string {
  if (lane.kind === "path") {
    const [first] = Object.entries(lane.source.path?.shares ?? {});
    return first ? `${percent(first[1])} ${t(first[0])}` : "";
  }
  // Of the overlap analysis as a whole the share says nothing: some part of it is always there.
  const share = lane.kind === "slices" ? lane.source.busy?.tracks[lane.track!.id] : lane.process?.group === "overlap" ? null : lane.source.busy?.processes[lane.process?.id ?? -1];
  return share === null || share === undefined ? "" : percent(share);
}

const percent = (share: number): string => (share > 0 && share < 0.01 ? "< 1 %" : `${Math.round(share * 100)} %`);

function describe(lane: Lane): string {
  if (lane.kind === "process") return [lane.label, lane.process?.label, lane.process?.pid === null ? "" : `pid ${lane.process?.pid}`].filter(Boolean).join(" · ");
  if (!lane.track) return lane.label;
  const { slices, overlapping, samples } = lane.track;
  const parts = [lane.label];
  if (slices !== undefined) parts.push(`${whole(slices)} ${t("slices")}`);
  if (overlapping) parts.push(`${whole(overlapping)} ${t("overlapping slices shown on extra rows")}`);
  if (samples !== undefined) parts.push(`${whole(samples)} ${t("counter samples")}`);
  return parts.join(" · ");
}

/** The unit, or what the file calls the series when that is all it says ("MHz"). */
export const unitOf = (track: Track): string => track.unit || (track.series === "value" ? "" : track.series) || "";

function scaleText(lane: Lane): string {
  const { max } = lane.track!;
  return max === null || max === undefined ? "" : `max ${grouped(max)} ${unitOf(lane.track!)}`;
}
