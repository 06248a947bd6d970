// SPDX-License-Identifier: Apache-2.0
// The server's HTTP API (docs/http_api.md): one capture's routes, with waiting for captures that are still being read.

/** Values of a query string; null and undefined are left out, lists repeat the key. */
export type Query = Record<string, string | number | boolean | null | undefined | readonly string[]>;

/** Which capture is meant, and the version of its data. */
export interface CaptureRef {
  readonly run: string;
  readonly worker: string;
  readonly span: string;
  readonly version: string | null;
}

/** How far the server is with reading a capture: a share of one, the name of the stage, and bytes while files are read. */
export interface Progress {
  readonly progress: number;
  readonly stage: string;
  readonly read_bytes?: number;
  readonly total_bytes?: number;
}

export interface CallOptions {
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: Progress) => void;
}

/** The routes of one capture. `route` is what follows `api/v1/`, for instance `trace/meta`. */
export interface Api {
  readonly capture: CaptureRef;
  /** GET of JSON. */
  get<T>(route: string, query?: Query, options?: CallOptions): Promise<T>;
  /** POST of a JSON body, JSON back. */
  post<T>(route: string, body: unknown, options?: CallOptions): Promise<T>;
  /** POST of a JSON body, bytes back (`application/x-cols`). */
  postBytes(route: string, body: unknown, options?: CallOptions): Promise<ArrayBuffer>;
  /** Address of a GET route, for downloads. */
  url(route: string, query?: Query): string;
}

interface ErrorBody {
  code?: string;
  title?: string;
  detail?: string | null;
  file?: string | null;
  hint?: string | null;
  id?: string | null;
  progress?: number;
  stage?: string;
  read_bytes?: number;
  total_bytes?: number;
  version?: string;
}

/** An answer that is not the data: what, which file, what to do. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly detail: string;
  readonly file: string;
  readonly hint: string;
  readonly id: string;
  readonly progress: Progress | null;

  constructor(status: number, body: ErrorBody) {
    super(body.title ?? `HTTP ${status}`);
    this.status = status;
    this.code = body.code ?? "unknown";
    this.detail = body.detail ?? "";
    this.file = body.file ?? "";
    this.hint = body.hint ?? "";
    this.id = body.id ?? "";
    this.progress = body.progress === undefined ? null : { progress: body.progress, stage: body.stage ?? "", read_bytes: body.read_bytes ?? 0, total_bytes: body.total_bytes ?? 0 };
  }
}

// Built files lie in static/, the API beside it; so this holds below any prefix, proxy or plugin path.
const ROOT = new URL(/* @vite-ignore */ "../api/v1/", import.meta.url);
const POLL_MS = 250;
const ON_ITS_WAY = 202;
const CONFLICT = 409;

export function address(route: string, query: Query = {}): string {
  const url = new URL(route, ROOT);
  for (const [key, value] of Object.entries(query)) {
    if (value === null || value === undefined) continue;
    if (Array.isArray(value)) for (const one of value as readonly string[]) url.searchParams.append(key, one);
    else url.searchParams.set(key, typeof value === "boolean" ? (value ? "1" : "0") : String(value));
  }
  return url.href;
}

async function answer(url: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    // Data that are on their way are no error (RFC 7240).
    response = await fetch(url, { credentials: "same-origin", ...init, headers: { Prefer: "respond-async", ...init.headers } });
  } catch (problem) {
    if (problem instanceof DOMException && problem.name === "AbortError") throw problem;
    throw new ApiError(0, {
      code: "offline",
      title: "The server does not answer",
      hint: "Is the process that serves this page still running? Start it again and reload.",
    });
  }
  if (response.ok && response.status !== ON_ITS_WAY) return response;
  let body: { error?: ErrorBody } = {};
  try {
    body = (await response.json()) as { error?: ErrorBody };
  } catch {
    // Not our server's words (a proxy, say): the status has to do.
  }
  throw new ApiError(response.status === ON_ITS_WAY ? CONFLICT : response.status, body.error ?? {});
}

/** One call without a capture. */
export async function call<T>(route: string, query: Query = {}, body?: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = { signal: signal ?? null };
  if (body !== undefined) {
    init.method = "POST";
    init.headers = { "Content-Type": "application/json" };
    init.body = JSON.stringify(body);
  }
  return (await (await answer(address(route, query), init)).json()) as T;
}

export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("aborted", "AbortError"));
    });
  });
}

/**
 * The routes of `capture`; `onChanged` hears that the files are newer than what the page knows. `ready` comes back when the
 * capture has been read and tells how far it is until then.
 */
export function captureApi(capture: CaptureRef, onChanged: () => void, ready: (options: CallOptions) => Promise<void> = () => Promise.resolve()): Api {
  const common: Query = { run: capture.run, worker: capture.worker, span: capture.span };

  async function patient(ask: (url: string) => Promise<Response>, route: string, query: Query, options: CallOptions): Promise<Response> {
    let versioned = capture.version !== null;
    await ready(options);
    for (;;) {
      const url = address(route, { ...common, ...(versioned ? { v: capture.version } : {}), ...query });
      try {
        return await ask(url);
      } catch (problem) {
        if (!(problem instanceof ApiError) || problem.status !== CONFLICT) throw problem;
        if (problem.code === "changed") {
          versioned = false;
          onChanged();
          continue;
        }
        if (problem.code !== "loading") throw problem;
        options.onProgress?.(problem.progress ?? { progress: 0, stage: "" });
        await pause(POLL_MS, options.signal);
      }
    }
  }

  function post(route: string, body: unknown, options: CallOptions): Promise<Response> {
    const init: RequestInit = {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal: options.signal ?? null,
    };
    return patient((url) => answer(url, init), route, {}, options);
  }

  return {
    capture,
    async get<T>(route: string, query: Query = {}, options: CallOptions = {}): Promise<T> {
      return (await (await patient((url) => answer(url, { signal: options.signal ?? null }), route, query, options)).json()) as T;
    },
    async post<T>(route: string, body: unknown, options: CallOptions = {}): Promise<T> {
      return (await (await post(route, body, options)).json()) as T;
    },
    async postBytes(route: string, body: unknown, options: CallOptions = {}): Promise<ArrayBuffer> {
      return (await post(route, body, options)).arrayBuffer();
    },
    url(route: string, query: Query = {}): string {
      return address(route, { ...common, ...query });
    },
  };
}
