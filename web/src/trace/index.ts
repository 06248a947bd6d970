// SPDX-License-Identifier: Apache-2.0
// The Trace view: `mountTrace` puts a timeline into an element of the shell.

import type { Api } from "../api";
import type { TraceHandle, TraceState } from "../trace_state";
import "./trace.css";
import { TraceView } from "./view";

export type { TraceHandle, TraceState } from "../trace_state";

export function mountTrace(host: HTMLElement, api: Api, state: TraceState): TraceHandle {
  let { language } = state;
  let view = new TraceView(host, api, state);
  void view.open();
  return {
    update(next) {
      if (next.language === language) return view.update(next);
      // Every word changes; the address holds all that is to stay.
      language = next.language;
      view.destroy();
      view = new TraceView(host, api, next);
      void view.open();
    },
    destroy: () => view.destroy(),
  };
}
