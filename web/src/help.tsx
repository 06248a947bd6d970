// SPDX-License-Identifier: Apache-2.0
// The list of keys.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { editorLink } from "./settings";
import { IconButton } from "./ui/controls";
import { t } from "./words";

export const helpOpen = signal(false);

const KEYS: readonly (readonly [string, readonly (readonly [string, string])[]])[] = [
  ["All views", [["1 … 9, 0", "n-th view, Verdict"], ["/", "search"], ["y", "copy link"], ["?", "this list"], ["Esc", "clear, close"]]],
  ["Tables", [["↑ ↓ PgUp PgDn Home End", "move"], ["Enter", "open the row"], ["Space", "select the row"], ["Ctrl+C", "copy rows"], ["t", "show in Trace"], ["Shift+click on a heading", "sort by several columns"]]],
  ["Trace", [
    ["W / S, Ctrl+wheel", "zoom in / out (Shift: fast)"], ["A / D, ← / →", "pan"], ["↑ / ↓", "scroll tracks"], ["Alt+drag, Shift+Z", "zoom to range"],
    ["F", "fit selection"], ["Ctrl+0", "whole capture"], ["Backspace", "undo zoom"], ["M", "range of the slice"], ["K", "flag or range mark"], [". / ,", "next / previous slice"],
    ["] / [", "next / previous of the same name"], ["> / <", "next / previous gap of the device"], ["G / Shift+G", "follow flow"], ["P / H / E / Q", "pin, hide, fold, bottom panel"], ["L / R", "align start / end"], ["n / N", "next / previous hit"],
  ]],
  ["Memory", [["drag", "zoom"], ["double click, Backspace", "whole time"]]],
];

export function Help(): JSX.Element | null {
  const box = useRef<HTMLDialogElement>(null);
  const open = helpOpen.value;
  useEffect(() => {
    if (open) box.current?.showModal();
    else box.current?.close();
  }, [open]);
  return (
    <dialog ref={box} class="help" aria-label={t("Keyboard")} onClose={() => { helpOpen.value = false; }} onClick={(event) => { if (event.target === box.current) helpOpen.value = false; }}>
      {open && (
        <div class="help-inner">
          <header class="card-head">
            <h2>{t("Keyboard")}</h2>
            <span class="spring" />
            <IconButton icon="close" label={t("Close")} onClick={() => { helpOpen.value = false; }} />
          </header>
          <div class="help-groups">
            {KEYS.map(([title, keys]) => (
              <section key={title}>
                <h3>{t(title)}</h3>
                <dl>
                  {keys.map(([key, text]) => (
                    <div key={key}>
                      <dt><kbd>{t(key)}</kbd></dt>
                      <dd>{t(text)}</dd>
                    </div>
                  ))}
                </dl>
              </section>
            ))}
          </div>
          <label class="field-label editor">
            <span>{t("Editor link")}</span>
            <input type="text" value={editorLink.value} onChange={(event) => { editorLink.value = event.currentTarget.value; }} />
          </label>
        </div>
      )}
    </dialog>
  );
}
