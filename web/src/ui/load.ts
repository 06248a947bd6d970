// SPDX-License-Identifier: Apache-2.0
// Data on its way: what a view shows before, instead of, and after an answer.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, type CallOptions, type Progress } from "../api";

export interface Loaded<T> {
  readonly data: T | null;
  readonly problem: ApiError | null;
  readonly progress: Progress | null;
  /** An answer is awaited; `data` may still hold the one before. */
  readonly busy: boolean;
  readonly again: () => void;
}

const OTHERS_MS = 400;

/** Asks again until all workers of a run are read: each one that is ready joins the picture. True while some are not. */
export function useOthers(load: Loaded<{ readonly missing: readonly { worker: string; state: string }[] }>): boolean {
  const pending = load.data?.missing.some((one) => one.state === "loading" || one.state === "found") ?? false;
  useEffect(() => {
    if (!pending || load.busy) return undefined;
    const timer = window.setTimeout(load.again, OTHERS_MS);
    return () => clearTimeout(timer);
  }, [pending, load.busy]);
  return pending;
}

/** Asks when `key` changes; older questions are taken back. A null key asks nothing. */
export function useLoad<T>(key: string | null, ask: (options: CallOptions) => Promise<T>): Loaded<T> {
  const [state, setState] = useState<Omit<Loaded<T>, "again">>({ data: null, problem: null, progress: null, busy: key !== null });
  const [round, setRound] = useState(0);
  const latest = useRef(ask);
  latest.current = ask;
  useEffect(() => {
    if (key === null) return undefined;
    const stop = new AbortController();
    setState((before) => ({ ...before, problem: null, progress: null, busy: true }));
    const onProgress = (progress: Progress): void => {
      if (!stop.signal.aborted) setState((before) => ({ ...before, progress }));
    };
    latest.current({ signal: stop.signal, onProgress }).then(
      (data) => {
        if (!stop.signal.aborted) setState({ data, problem: null, progress: null, busy: false });
      },
      (problem: unknown) => {
        if (stop.signal.aborted) return;
        if (problem instanceof ApiError) setState({ data: null, problem, progress: null, busy: false });
        else {
          setState({ data: null, problem: new ApiError(0, { code: "page", title: String(problem) }), progress: null, busy: false });
          console.error(problem);
        }
      },
    );
    return () => stop.abort();
  }, [key, round]);
  return { ...state, again: () => setRound((n) => n + 1) };
}
