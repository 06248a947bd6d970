// SPDX-License-Identifier: Apache-2.0
// Elements in one line. Children that are strings become text, never markup: names of kernels contain < and >.

export type Child = Node | string | null | false | undefined;

type Attributes = Readonly<Record<string, string | number | boolean | null | undefined | ((event: never) => void)>>;

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value as unknown as EventListener);
    else if (key === "style") element.style.cssText = String(value); // as an attribute a strict CSP would refuse it
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null && child !== undefined && child !== false) element.append(child);
  return element;
}

/** A button; without visible text its label is the tooltip. */
export function button(text: string, label: string, action: () => void, attributes: Attributes = {}): HTMLButtonElement {
  return h("button", { type: "button", title: label, ...(text.length < 3 ? { "aria-label": label } : {}), click: action, ...attributes }, text);
}
