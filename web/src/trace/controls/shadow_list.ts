// SPDX-License-Identifier: Apache-2.0
// The slices in view as a list that keyboards and screen readers walk through; the canvas alone would be a picture.

import { h } from "./dom";
import { length } from "../numbers";
import { inView, type Picked } from "../canvas/pick";
import type { Session } from "../session";
import type { Timeline } from "../canvas/timeline";
import { t } from "../words";

const MOST = 200;

export class ShadowList {
  private slices: Picked[] = [];
  private at = -1;
  private stale = true;

  constructor(private readonly root: HTMLElement, private readonly timeline: Timeline, private readonly session: Session) {
    root.setAttribute("role", "listbox");
    root.setAttribute("tabindex", "0");
    root.setAttribute("aria-label", t("Slices in view"));
    root.setAttribute("data-testid", "trace-slices-in-view");
    root.addEventListener("focus", () => this.fill());
    root.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      this.go(Math.max(0, Math.min(this.slices.length - 1, step === Infinity ? this.slices.length - 1 : this.at + step)));
    });
    root.addEventListener("click", (event) => {
      const index = [...root.children].indexOf((event.target as Element).closest("li")!);
      if (index >= 0) this.go(index);
    });
  }

  /** The picture changed; the list is made when somebody is there to read it. */
  refresh(): void {
    this.stale = true;
    if (document.activeElement === this.root) this.fill();
  }

  /** Selects the first slice in view, for keys that need one. */
  first(): void {
    this.fill();
    this.go(0);
  }

  private fill(): void {
    if (!this.stale) return;
    this.stale = false;
    const before = this.slices[this.at];
    this.slices = [];
    for (const lane of this.timeline.visible())
      if (lane.kind === "slices")
        for (const row of lane.rows)
          if (this.slices.length < MOST) this.slices.push(...inView(lane.source, row, this.timeline.view, this.timeline.nsPerPixel, MOST - this.slices.length));
    this.at = before ? this.slices.findIndex((slice) => slice.id === before.id && slice.source === before.source) : -1;
    if (document.activeElement !== this.root) return;
    this.root.replaceChildren(...(this.slices.length ? this.slices : []).map((slice, i) =>
      h("li", { role: "option", id: `trace-option-${i}`, "aria-selected": String(i === this.at) },
        `${slice.source.nameOf(slice.name)}${slice.count > 1 ? ` (${t("longest of {count}", { count: slice.count })})` : ""}, ${this.timeline.timeText(slice.start + slice.source.place)}, ${length(slice.dur)}`)));
  }

  private go(index: number): void {
    const slice = this.slices[index];
    if (!slice) return;
    this.at = index;
    for (const [i, option] of [...this.root.children].entries()) option.setAttribute("aria-selected", String(i === index));
    if (this.root.children[index]) this.root.setAttribute("aria-activedescendant", `trace-option-${index}`);
    this.root.children[index]?.scrollIntoView({ block: "nearest" });
    void this.session.select(slice.source, slice.id, false, slice.count);
  }
}
