// SPDX-License-Identifier: Apache-2.0
// What a reader chose for all captures: theme, language, units, panel. Kept in the browser.

import { computed, effect, signal, type Signal } from "@preact/signals";

const PREFIX = "stepscope.";

export function readSetting<T>(key: string, fallback: T): T {
  try {
    const text = localStorage.getItem(PREFIX + key);
    return text === null ? fallback : (JSON.parse(text) as T);
  } catch {
    return fallback; // storage is off or holds something else
  }
}

export function keep(key: string, value: unknown): void {
  try {
    localStorage.setItem(PREFIX + key, JSON.stringify(value));
  } catch {
    // A page without storage still works; it only forgets.
  }
}

function remembered<T>(key: string, fallback: T): Signal<T> {
  const value = signal(readSetting(key, fallback));
  let first = true;
  effect(() => {
    const now = value.value;
    if (!first) keep(key, now);
    first = false;
  });
  return value;
}

export type Theme = "system" | "light" | "dark";
export type Language = "en" | "zh";

export const theme = remembered<Theme>("theme", "system");
export const units = remembered<"heading" | "auto">("units", "heading");
export const language = remembered<Language>("language", navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
export const panelWidth = remembered("panel.width", window.innerWidth >= 1700 ? 236 : 208);
export const panelOpen = remembered("panel.open", window.innerWidth >= 760);
export const editorLink = remembered("editor", "vscode://file/{file}:{line}");

/** What the surroundings want: TensorBoard's theme inside TensorBoard, else the system's. */
export const surroundingsDark = signal(false);
export const dark = computed(() => (theme.value === "system" ? surroundingsDark.value : theme.value === "dark"));

/** The page around our frame, when it is of the same origin (TensorBoard). */
export function hostPage(): Window | null {
  try {
    return window.parent !== window && window.parent.document ? window.parent : null;
  } catch {
    return null;
  }
}

export function watchSurroundings(): void {
  const host = hostPage();
  if (host) {
    const body = host.document.body;
    const look = (): void => {
      surroundingsDark.value = body.classList.contains("dark-mode");
    };
    look();
    new MutationObserver(look).observe(body, { attributes: true, attributeFilter: ["class"] });
    return;
  }
  const query = window.matchMedia("(prefers-color-scheme: dark)");
  surroundingsDark.value = query.matches;
  query.addEventListener("change", () => {
    surroundingsDark.value = query.matches;
  });
}
