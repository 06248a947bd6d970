// SPDX-License-Identifier: Apache-2.0
// The timeline's place in the page: of one capture with its neighbours, or of two that are compared.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Api, ApiError } from "../api";
import { dark, language } from "../settings";
import { openView, place, setParams } from "../state";
import type { TraceHandle, TraceState } from "../trace_state";
import { Problem } from "../ui/messages";

const SHELL_KEYS = ["run", "worker", "span", "theme"];

interface Props {
  readonly api: Api;
  readonly workers: TraceState["workers"];
  /** Where the view has parameters of its own, those of the timeline carry this in front. */
  readonly prefix?: string;
  /** Parameters of a timeline that the address says nothing about. */
  readonly begin?: Readonly<Record<string, string>>;
  readonly together?: boolean;
}

export function TimelineBox({ api, workers, prefix = "", begin = {}, together = false }: Props): JSX.Element {
  const host = useRef<HTMLDivElement>(null);
  const handle = useRef<TraceHandle | null>(null);
  const written = useRef("");
  const [problem, setProblem] = useState<ApiError | null>(null);

  const params: Record<string, string> = { ...begin };
  for (const [key, value] of Object.entries(place.value.params)) {
    if (prefix === "" ? !SHELL_KEYS.includes(key) : key.startsWith(prefix)) params[key.slice(prefix.length)] = value;
  }
  const state: TraceState = {
    params,
    setParams: (changes) => {
      setParams(Object.fromEntries(Object.entries(changes).map(([key, value]) => [prefix + key, value])));
      written.current = JSON.stringify(place.peek().params);
    },
    open: openView,
    dark: dark.value,
    language: language.value,
    workers,
    together,
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

  return problem ? <Problem problem={problem} /> : <div ref={host} class="trace-host" />;
}
