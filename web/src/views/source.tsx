// SPDX-License-Identifier: Apache-2.0
// Source: time beside the lines of the program that called operators; the code itself where `--source-root` allows it.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Api } from "../api";
import { auto, whole } from "../format";
import { editorLink } from "../settings";
import { openView, param, setParams } from "../state";
import { Card } from "../ui/controls";
import { useLoad } from "../ui/load";
import { Await } from "../ui/messages";
import { t } from "../words";
import { Frame, type ViewProps } from "./view";

interface Times {
  readonly calls: number;
  readonly host_us: number;
  readonly device_us: number;
}

interface Files {
  readonly source_root: boolean;
  readonly count: number;
  readonly files: readonly (Times & { readonly file: string; readonly lines: number })[];
}

type LineTimes = Times & { readonly line: number; readonly function: string; readonly operators: readonly string[] };

interface FileLines {
  readonly file: string;
  readonly text: readonly string[];
  readonly refused: string;
  readonly lines: readonly LineTimes[];
}

const baseName = (file: string): string => file.replace(/^.*\/((?:[^/]+\/)?[^/]+)$/, "$1");

export function View({ api }: ViewProps): JSX.Element {
  const load = useLoad(JSON.stringify([api.capture, "source"]), (options) => api.get<Files>("source/files", {}, options));
  const chosen = param("file") || load.data?.files[0]?.file || "";
  return (
    <Frame name="source" ready={!load.busy && (load.problem !== null || chosen !== "")}>
      <Await load={load} remedy="stack" tall>
        {(data) => (
          <div class="source">
            <Card title={t("Files")} note={`${whole(data.count)}`} testid="source-files">
              <ul class="source-files">
                {data.files.map((one) => (
                  <li key={one.file}>
                    <button type="button" aria-current={one.file === chosen} title={one.file} onClick={() => setParams({ file: one.file, line: null })}>
                      <span class="clip">{baseName(one.file)}</span>
                      <small>{auto(one.device_us || one.host_us, "us")}</small>
                    </button>
                  </li>
                ))}
              </ul>
            </Card>
            {chosen && <Lines key={chosen} api={api} file={chosen} />}
          </div>
        )}
      </Await>
    </Frame>
  );
}

function Lines({ api, file }: { api: Api; file: string }): JSX.Element {
  const load = useLoad(JSON.stringify([api.capture, file]), (options) => api.get<FileLines>("source/lines", { file }, options));
  const box = useRef<HTMLDivElement>(null);
  const wanted = Number(param("line")) || null;
  useEffect(() => {
    const heaviest = load.data && [...load.data.lines].sort((a, b) => b.device_us - a.device_us || b.host_us - a.host_us)[0];
    const line = wanted ?? heaviest?.line;
    if (line) box.current?.querySelector(`[data-line="${line}"]`)?.scrollIntoView({ block: "center" });
  }, [load.data]);
  return (
    <Card title={baseName(file)} note={t("times are of the operators that a line called; backward counts for its forward line")} testid="source-lines">
      <Await load={load}>{(data) => <div ref={box} class="source-box" tabIndex={0}>{data.refused && <p class="table-note block">{t(data.refused)}</p>}<Code data={data} /></div>}</Await>
    </Card>
  );
}

/** Every line of the file, or those with times where the file may not be shown. */
function Code({ data }: { data: FileLines }): JSX.Element {
  const by = new Map<number, LineTimes[]>();
  for (const one of data.lines) by.set(one.line, [...(by.get(one.line) ?? []), one]);
  const most = { host: Math.max(...data.lines.map((one) => one.host_us), 1e-9), device: Math.max(...data.lines.map((one) => one.device_us), 1e-9) };
  const numbers = data.text.length ? data.text.map((_, at) => at + 1) : [...by.keys()];
  const sum = (line: number, key: "host_us" | "device_us" | "calls"): number => (by.get(line) ?? []).reduce((total, one) => total + one[key], 0);
  return (
    <table class="source-code">
      <thead><tr><th scope="col" class="number">{t("line")}</th><th scope="col" class="number">Device</th><th scope="col" class="number">Host</th><th scope="col" class="number">{t("calls of operators")}</th><th scope="col">{t("code")}</th></tr></thead>
      <tbody>
        {numbers.map((line) => {
          const here = by.get(line);
          const [device, host] = [sum(line, "device_us"), sum(line, "host_us")];
          const names = here ? [...new Set(here.flatMap((one) => one.operators))] : [];
          return (
            <tr key={line} data-line={line} class={here ? "timed" : ""} title={names.join(", ")}>
              <td class="number"><a href={editorLink.value.replace("{file}", encodeURI(data.file)).replace("{line}", String(line))} rel="noreferrer" title={t("open in editor")}>{line}</a></td>
              <td class="number heat" style={{ "--share": device / most.device }}>{device ? auto(device, "us") : ""}</td>
              <td class="number heat" style={{ "--share": host / most.host }}>{host ? auto(host, "us") : ""}</td>
              <td class="number">{here ? <button type="button" class="link" title={t("Show in Operator")} onClick={() => openView("operator", { q: names[0] ?? "" })}>{whole(sum(line, "calls"))}</button> : ""}</td>
              <td><code>{data.text.length ? data.text[line - 1] : here?.map((one) => `${one.function}: ${names.join(", ")}`).join("; ")}</code></td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
