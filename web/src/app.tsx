// SPDX-License-Identifier: Apache-2.0
// Builds the page in place; TensorBoard and the standalone page both come in through render().

import "./style.css";
import { effect } from "@preact/signals";
import { render as draw } from "preact";
import { dark, language, watchSurroundings } from "./settings";
import { Shell } from "./shell";
import { watchRuns } from "./state";

function addStyles(): void {
  const href = new URL(/* @vite-ignore */ `./${"style"}.css`, import.meta.url).href;
  if ([...document.styleSheets].some((sheet) => sheet.href === href)) return;
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = href;
  document.head.append(link);
}

export async function render(): Promise<void> {
  addStyles();
  watchSurroundings();
  const root = document.createElement("div");
  root.className = "stepscope";
  document.body.append(root);
  document.title ||= "stepscope";
  effect(() => {
    root.dataset["theme"] = dark.value ? "dark" : "light";
    document.documentElement.style.colorScheme = dark.value ? "dark" : "light";
    document.documentElement.style.background = dark.value ? "#0f1319" : "#f5f6f8";
    document.documentElement.lang = language.value === "zh" ? "zh-CN" : "en";
  });
  document.body.classList.add("stepscope-page");
  watchRuns();
  draw(<Shell />, root);
}
