// SPDX-License-Identifier: Apache-2.0
// The menu at the pointer (or, with Shift+F10, at the selected slice).

import { h } from "./dom";

export interface MenuItem {
  readonly text: string;
  readonly key?: string;
  readonly testid: string;
  /** Without an action the item is shown and cannot be used. */
  readonly act: (() => void) | null;
}

export class ContextMenu {
  private readonly root = h("div", { class: "trace-context", role: "menu", "data-testid": "trace-context", hidden: true });
  private readonly stop = new AbortController();
  private back: HTMLElement | null = null;

  constructor(private readonly host: HTMLElement) {
    host.append(this.root);
    const options = { signal: this.stop.signal };
    document.addEventListener("pointerdown", (event) => {
      if (!this.root.contains(event.target as Node)) this.close(false);
    }, options);
    this.root.addEventListener("keydown", (event) => this.key(event), options);
    window.addEventListener("blur", () => this.close(false), options);
  }

  destroy(): void {
    this.stop.abort();
  }

  /** `x` and `y` are of the window; groups are separated by a line. */
  open(x: number, y: number, groups: readonly (readonly MenuItem[])[]): void {
    this.back = document.activeElement instanceof HTMLElement ? document.activeElement : null;
    this.root.replaceChildren(...groups.filter((group) => group.length).map((group) => h("div", { role: "none", class: "trace-context-group" }, ...group.map((item) => this.item(item)))));
    this.root.hidden = false;
    const box = this.host.getBoundingClientRect();
    const left = Math.max(4, Math.min(x - box.left, box.width - this.root.offsetWidth - 4));
    const top = Math.max(4, Math.min(y - box.top, box.height - this.root.offsetHeight - 4));
    this.root.style.transform = `translate(${left}px, ${top}px)`;
    this.items()[0]?.focus();
  }

  close(refocus = true): void {
    if (this.root.hidden) return;
    this.root.hidden = true;
    if (refocus) this.back?.focus();
  }

  private item({ text, key, testid, act }: MenuItem): HTMLElement {
    const element = h("button", { type: "button", role: "menuitem", tabindex: -1, "data-testid": testid, disabled: act === null, click: () => {
      this.close();
      act?.();
    } }, h("span", {}, text), key ? h("kbd", {}, key) : null);
    return element;
  }

  private items(): HTMLElement[] {
    return [...this.root.querySelectorAll<HTMLElement>("[role=menuitem]:not(:disabled)")];
  }

  private key(event: KeyboardEvent): void {
    const items = this.items();
    const at = items.indexOf(document.activeElement as HTMLElement);
    const go = (to: number): void => items[(to + items.length) % items.length]?.focus();
    if (event.key === "Escape" || event.key === "Tab") this.close();
    else if (event.key === "ArrowDown") go(at + 1);
    else if (event.key === "ArrowUp") go(at - 1);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(items.length - 1);
    else return event.stopPropagation(); // Enter and the space bar press the button, and nothing reaches the timeline
    event.preventDefault();
    event.stopPropagation();
  }
}
