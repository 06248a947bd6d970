// SPDX-License-Identifier: Apache-2.0
// The Trace view's place in the shell; the timeline itself lives in ../trace and draws into this box.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api";
import { dark, language } from "../settings";
import { openView, place, selection, setParams } from "../state";
import type { TraceHandle, TraceState } from "../trace_state";
import { Problem } from "../ui/messages";
import type { ViewProps } from "./view";

const SHELL_KEYS = ["run", "worker", "span", "theme"];

export function View({ api }: ViewProps): JSX.Element {
  const host = useRef<HTMLDivElement>(null);
  const handle = useRef<TraceHandle | null>(null);
  const written = useRef("");
  const [problem, setProblem] = useState<ApiError | null>(null);

  const params: Record<string, string> = {};
  for (const [key, value] of Object.entries(place.value.params)) if (!SHELL_KEYS.includes(key)) params[key] = value;
  const workers = (selection.value.run?.workers ?? []).flatMap((worker) => {
    const span = worker.spans[0];
    return span ? [{ run: selection.value.run!.name, worker: worker.name, span: span.name, version: span.version }] : [];
  });
  const state: TraceState = {
    params,
    setParams: (changes) => {
      setParams(changes);
      written.current = JSON.stringify(place.peek().params);
    },
    open: openView,
    dark: dark.value,
    language: language.value,
    workers,
  };

  useEffect(() => {
    let gone = false;
    import("../trace").then(
      ({ mountTrace }) => {
        if (gone || !host.current) return;
        handle.current = mountTrace(host.current, api, state);
      },
      (reason: unknown) => setProblem(new ApiError(0, { title: "The timeline did not load", detail: String(reason), hint: "Reload the page." })),
    );
    return () => {
      gone = true;
      handle.current?.destroy();
      handle.current = null;
    };
  }, [api]);

  const outside = JSON.stringify(place.value.params);
  useEffect(() => {
    // What the timeline wrote itself needs no answer.
    if (written.current !== outside) handle.current?.update(state);
  }, [outside]);
  useEffect(() => handle.current?.update(state), [state.dark, state.language, workers.length]);

  if (problem) return <Problem problem={problem} />;
  return (
    <div class="view fill">
      <div ref={host} class="trace-host" />
    </div>
  );
}
