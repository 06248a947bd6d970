// SPDX-License-Identifier: Apache-2.0
// Where the reader is (view, capture, filters), kept in the address; and the list of runs.

import { computed, effect, signal } from "@preact/signals";
import { type Api, ApiError, call, type CallOptions, captureApi, pause } from "./api";
import { hostPage, type Language, theme, type Theme } from "./settings";

/** One text in each language. */
export type Texts = Readonly<Record<Language, string>>;

export interface SpanEntry {
  name: string;
  state: "found" | "loading" | "ready" | "failed" | "not_analysed";
  progress: number;
  read_bytes?: number;
  total_bytes?: number;
  stage: string;
  version: string | null;
  views: string[];
  device: string | null;
  simulated: boolean;
  modelled: string[];
  rank: number | null;
  path: string;
  steps: number | null;
  changing: boolean;
  quality: { complete?: boolean; summary: Texts; headline: Texts; warnings: number } | null;
  command: string | null;
  error: { title?: string; detail?: string; hint?: string; file?: string; id?: string } | null;
}

/** Rows and files that could not be used, in words; null where all were. */
export function lostOf(span: SpanEntry | null | undefined): Texts | null {
  const quality = span?.quality;
  return quality && (quality.complete === false || quality.warnings > 0) ? quality.summary : null;
}

export interface WorkerEntry {
  name: string;
  spans: SpanEntry[];
}

export interface RunEntry {
  name: string;
  views: string[];
  workers: WorkerEntry[];
}

export interface Runs {
  app: string;
  version: string;
  sql: boolean;
  source_preview: boolean;
  folders: string[];
  refresh_s: number;
  runs: RunEntry[];
  empty: { title: string; detail: string; hint: string; layouts: string[] } | null;
}

export type Params = Readonly<Record<string, string>>;

export interface Place {
  readonly view: string;
  readonly params: Params;
}

/** Names of the server and slugs of the address. */
export const VIEWS: readonly (readonly [slug: string, names: readonly string[]])[] = [
  ["verdict", ["Verdict"]],
  ["cluster", ["Cluster"]],
  ["overview", ["Overview"]],
  ["operator", ["Operator"]],
  ["kernel", ["NPU Kernel", "GPU Kernel", "CPU Kernel", "Kernel"]],
  ["trace", ["Trace"]],
  ["memory", ["Memory"]],
  ["distributed", ["Distributed"]],
  ["communication", ["Communication"]],
  ["module", ["Module"]],
  ["flame", ["Flame"]],
  ["source", ["Source"]],
  ["roofline", ["Roofline"]],
  ["findings", ["Findings"]],
  ["files", ["Files"]],
];

export const slugOf = (name: string): string => VIEWS.find(([, names]) => names.includes(name))?.[0] ?? name.toLowerCase();

const SHARED = ["run", "worker", "span", "step"];

function decode(text: string): Place {
  const clean = text.replace(/^#?\/?/, "");
  const cut = clean.indexOf("?");
  const view = decodeURIComponent(cut < 0 ? clean : clean.slice(0, cut));
  const params: Record<string, string> = {};
  if (cut >= 0) for (const [key, value] of new URLSearchParams(clean.slice(cut + 1))) params[key] = value;
  return { view, params };
}

function encode(where: Place): string {
  const query = new URLSearchParams(where.params).toString();
  return `/${where.view}${query ? `?${query}` : ""}`;
}

// TensorBoard serves the bundle as data/plugin/<name>/static/…; its own page keeps our state under that name.
const PLUGIN = /\/data\/plugin\/([^/]+)\//.exec(new URL(import.meta.url).pathname)?.[1] ?? null;
const HOST_KEY = PLUGIN === null ? "" : `p.${PLUGIN}.s`;

function readAddress(): Place {
  const host = PLUGIN === null ? null : hostPage();
  if (!host) return decode(window.location.hash);
  const part = host.location.hash.split("&").find((piece) => piece.startsWith(`${HOST_KEY}=`));
  return decode(part ? decodeURIComponent(part.slice(HOST_KEY.length + 1)) : "");
}

function hostHash(host: Window, where: Place): string {
  const others = host.location.hash.replace(/^#/, "").split("&").filter((piece) => piece && !piece.startsWith(`${HOST_KEY}=`));
  if (!others.length) others.push(PLUGIN ?? "");
  return `#${[...others, `${HOST_KEY}=${encodeURIComponent(encode(where))}`].join("&")}`;
}

/** The address that shows what is shown now. */
export function linkHere(): string {
  const forced = theme.peek() === "system" ? place.peek() : { ...place.peek(), params: { ...place.peek().params, theme: theme.peek() } };
  const host = PLUGIN === null ? null : hostPage();
  if (host) return new URL(hostHash(host, forced), host.location.href).href;
  return new URL(`#${encode(forced)}`, window.location.href).href;
}

export const place = signal<Place>(readAddress());
if (["light", "dark"].includes(place.peek().params["theme"] ?? "")) theme.value = place.peek().params["theme"] as Theme;

function writeAddress(where: Place, push: boolean): void {
  const host = PLUGIN === null ? null : hostPage();
  if (host) host.history.replaceState(host.history.state, "", hostHash(host, where));
  else if (push) window.history.pushState(null, "", `#${encode(where)}`);
  else window.history.replaceState(null, "", `#${encode(where)}`);
}

window.addEventListener("popstate", () => {
  if (PLUGIN === null) place.value = decode(window.location.hash);
});

/** Parameters of views that were left, so that coming back shows what was there. */
const left = new Map<string, Params>();

/** Changes parameters of this view; null removes one. */
export function setParams(changes: Readonly<Record<string, string | null>>): void {
  const now = place.peek();
  const params: Record<string, string> = { ...now.params };
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) delete params[key];
    else params[key] = value;
  }
  const next = { view: now.view, params };
  writeAddress(next, false);
  place.value = next;
}

/** Parameter of this view. */
export const param = (key: string, fallback = ""): string => place.value.params[key] ?? fallback;

/** Opens a view; without `params` as it was left. */
export function openView(view: string, params?: Params): void {
  const now = place.peek();
  const shared: Record<string, string> = {};
  const own: Record<string, string> = {};
  for (const [key, value] of Object.entries(now.params)) (SHARED.includes(key) ? shared : own)[key] = value;
  left.set(now.view, own);
  const next = { view, params: { ...(params ? {} : left.get(view)), ...shared, ...params } };
  writeAddress(next, true);
  place.value = next;
}

/** Chooses another capture; what belonged to the old one (filters, slices) goes. */
export function openCapture(choice: { run?: string; worker?: string; span?: string }): void {
  const now = place.peek();
  left.clear();
  const base: Record<string, string> = {};
  if (choice.run === undefined) {
    if (now.params["run"]) base["run"] = now.params["run"];
    if (choice.worker === undefined && now.params["worker"]) base["worker"] = now.params["worker"];
  }
  if (now.params["group"]) base["group"] = now.params["group"];
  const next = { view: now.view, params: { ...base, ...choice } };
  writeAddress(next, true);
  place.value = next;
}

export const runs = signal<Runs | null>(null);
export const runsProblem = signal<ApiError | null>(null);

export interface Selection {
  readonly run: RunEntry | null;
  readonly worker: WorkerEntry | null;
  readonly span: SpanEntry | null;
  /** What the address names and the list does not have. */
  readonly unknown: readonly string[];
}

function choose<T extends { name: string }>(all: readonly T[], name: string | undefined, what: string, unknown: string[]): T | null {
  const found = name === undefined ? undefined : all.find((one) => one.name === name);
  if (name !== undefined && !found) unknown.push(`${what} ${name}`);
  return found ?? all[0] ?? null;
}

export const selection = computed<Selection>(() => {
  const { params } = place.value;
  const unknown: string[] = [];
  const run = choose(runs.value?.runs ?? [], params["run"], "Runs", unknown);
  const worker = choose(run?.workers ?? [], params["worker"], "Workers", unknown);
  const span = choose(worker?.spans ?? [], params["span"], "Spans", unknown);
  return { run, worker, span, unknown };
});

/** Views of the selected capture, in the order of the server. */
export const views = computed<{ slug: string; name: string }[]>(() => {
  const { run, span } = selection.value;
  const names = [...(span?.views ?? [])];
  for (const name of run?.views ?? []) if (["Cluster", "Distributed"].includes(name) && !names.includes(name)) names.push(name);
  const order = VIEWS.map(([slug]) => slug);
  return names.map((name) => ({ slug: slugOf(name), name })).sort((a, b) => order.indexOf(a.slug) - order.indexOf(b.slug));
});

/** The view on the screen: the one of the address, else the first one there is. */
export const view = computed(() => {
  const wanted = place.value.view;
  if (wanted) return wanted;
  return views.value[0]?.slug ?? "overview";
});

let lastKey = "";
let lastApi: Api | null = null;

const ASKED_TOGETHER = 8; // ranks of one verdict; of larger runs the chosen one is asked (MOST_RANKS of views/verdict.py)

/** Whether the view is about the run rather than about the chosen worker. */
export const showsAllRanks = computed(() => {
  const count = selection.value.run?.workers.length ?? 0;
  return ["distributed", "cluster"].includes(view.value) || (view.value === "verdict" && count > 1 && count <= ASKED_TOGETHER);
});

/** Findings that the Verdict showed, and of which data: other data have another key, and no count until they were asked. */
export const counted = signal<{ readonly key: string; readonly findings: number } | null>(null);

/** What a verdict is about: all ranks of a run, or the chosen worker of a larger one, as they are now. */
export const verdictKey = computed(() => {
  const { run, worker } = selection.value;
  const asked = (run?.workers.length ?? 0) <= ASKED_TOGETHER ? (run?.workers ?? []) : [worker];
  return JSON.stringify([run?.name, asked.map((one) => [one?.name, one?.spans.map((span) => span.version)])]);
});

/** Numbers beside the names of views, where they are known without asking for them. */
export const viewCounts = computed<Readonly<Record<string, number>>>(() => {
  const ranks = selection.value.run?.workers.length ?? 0;
  return { ...(ranks > 1 ? { cluster: ranks } : {}), ...(counted.value?.key === verdictKey.value && counted.value.findings > 0 ? { verdict: counted.value.findings } : {}) };
});

/** Routes of the selected capture; the same object as long as it is the same data. */
export const api = computed<Api | null>(() => {
  const { run, worker, span } = selection.value;
  if (!run || !worker || !span) return null;
  const { version } = span;
  // Known before the capture is read, so the calls that wait for it go on when it becomes ready.
  const key = JSON.stringify([run.name, worker.name, span.name, version]);
  if (key !== lastKey || !lastApi) {
    lastKey = key;
    lastApi = captureApi({ run: run.name, worker: worker.name, span: span.name, version }, () => void refresh(), readiness([run.name, worker.name, span.name]));
  }
  return lastApi;
});

export type Name = readonly [run: string, worker: string, span: string];

/** Routes about several captures at once; the first one is the one named in the address. */
export function apiFor(...captures: readonly [Name, ...Name[]]): Api {
  const [[run, worker, span]] = captures;
  return captureApi({ run, worker, span, version: null }, () => void refresh(), readiness(...captures));
}

function readiness(...captures: readonly Name[]): (options: CallOptions) => Promise<void> {
  return async (options) => {
    for (const name of captures) await whenReady(name, options);
  };
}

/** Gives up reading the selected capture. */
export async function cancelReading(): Promise<void> {
  const { run, worker, span } = selection.peek();
  if (run && worker && span) await call("cancel", {}, { run: run.name, worker: worker.name, span: span.name }).catch(() => undefined);
  await refresh();
}

const READ_AGAIN_MS = [50, 100, 150, 250];

/** Has the server read the capture. Asking for data right away would work too, but answers it with an error meanwhile. */
async function whenReady([run, worker, span]: Name, options: CallOptions): Promise<void> {
  const known = runs.peek()?.runs.find((one) => one.name === run)?.workers.find((one) => one.name === worker)?.spans.find((one) => one.name === span);
  if (known?.state === "ready") return;
  for (let round = 0; ; round++) {
    const entry = await call<SpanEntry>("load", {}, { run, worker, span }, options.signal);
    if (entry.state === "failed") {
      await refresh();
      throw new ApiError(415, { code: "unreadable", title: "This capture cannot be read", ...(entry.error ?? {}) });
    }
    if (entry.state === "ready") return refresh();
    options.onProgress?.(entry);
    await pause(READ_AGAIN_MS[Math.min(round, READ_AGAIN_MS.length - 1)]!, options.signal);
  }
}

/** What came while the page was open: a run that is still recorded grows. Nothing moves because of it. */
export interface News {
  readonly steps: number;
  readonly ranks: number;
}
export const news = signal<News | null>(null);
let known: { readonly run: string; readonly worker: string; readonly span: string; readonly steps: number | null; readonly ranks: number } | null = null;

/** Compares the chosen run with what it was; another choice begins anew. */
function noteNews(): void {
  const { run, worker, span } = selection.peek();
  if (!run || !worker || !span) return;
  const now = { run: run.name, worker: worker.name, span: span.name, steps: span.steps ?? null, ranks: run.workers.length };
  if (!known || known.run !== now.run) {
    known = now;
    news.value = null;
    return;
  }
  const same = known.worker === now.worker && known.span === now.span;
  const steps = same && known.steps !== null && now.steps !== null ? Math.max(0, now.steps - known.steps) : 0;
  const ranks = Math.max(0, now.ranks - known.ranks);
  if (steps || ranks) {
    const before = news.peek();
    news.value = { steps: (before?.steps ?? 0) + steps, ranks: (before?.ranks ?? 0) + ranks };
  }
  // While it is read again its steps are not known: those of before stay what new ones are counted from.
  known = { ...now, steps: now.steps ?? (same ? known.steps : null) };
}

let asking: Promise<void> | null = null;

export function refresh(rescan = false): Promise<void> {
  asking ??= (async () => {
    try {
      const next = rescan ? await call<Runs>("rescan", {}, {}) : await call<Runs>("runs");
      if (JSON.stringify(next) !== JSON.stringify(runs.peek())) runs.value = next;
      noteNews();
      runsProblem.value = null;
    } catch (problem) {
      if (problem instanceof ApiError) runsProblem.value = problem;
      else throw problem;
    } finally {
      asking = null;
    }
  })();
  return asking;
}

/** Keeps the list fresh: quickly while something is being read, else at the server's own pace. */
export function watchRuns(): void {
  let timer = 0;
  const loop = async (): Promise<void> => {
    await refresh();
    const busy = selection.peek().span?.state === "loading";
    timer = window.setTimeout(() => void loop(), busy ? 500 : (runs.peek()?.refresh_s ?? 10) * 1000);
  };
  void loop();
  effect(() => {
    // The first question for data starts the reading; look again soon.
    const state = selection.value.span?.state;
    if (state === "found" || state === "loading") {
      clearTimeout(timer);
      timer = window.setTimeout(() => void loop(), 300);
    }
  });
}
