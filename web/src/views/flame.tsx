// SPDX-License-Identifier: Apache-2.0
// Flame: call stacks or nested operators, by time or count.

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { whole } from "../format";
import { param, setParams } from "../state";
import { Card, Select } from "../ui/controls";
import { Icicle, type Tree } from "../ui/icicle";
import { Icon } from "../ui/icons";
import { useLoad } from "../ui/load";
import { Await } from "../ui/messages";
import { t } from "../words";
import { Frame, StepSelect, Toolbar, type ViewProps } from "./view";

interface Flame {
  readonly names: readonly string[];
  readonly nodes: { readonly parent: readonly number[]; readonly name: readonly number[]; readonly weight: readonly number[]; readonly self: readonly number[] };
  readonly total: number;
  readonly unit: string;
  readonly left_out: number;
  readonly steps: readonly number[];
  readonly source?: string;
  readonly sources?: readonly string[];
}

const SOURCES = [{ value: "", label: "auto" }, { value: "stack", label: "Call stacks" }, { value: "op", label: "Operators" }];
const WEIGHTS = [{ value: "host", label: "Host Self" }, { value: "device", label: "Device Self" }, { value: "count", label: "Count" }];

export function View({ api }: ViewProps): JSX.Element {
  const step = param("step");
  const query = { step: step || null, source: param("source") || null, weight: param("weight", "host"), from: param("from") || null, to: param("to") || null };
  const load = useLoad(JSON.stringify([api.capture, query]), (options) => api.get<Flame>("flame", query, options));
  return (
    <Frame name="flame" ready={!load.busy}>
      <Toolbar>
        <Select label={t("Source")} testid="select-source" value={query.source ?? ""} options={SOURCES} onChange={(value) => setParams({ source: value || null })} />
        <Select label={t("Weight")} testid="select-weight" value={query.weight} options={WEIGHTS} onChange={(value) => setParams({ weight: value })} />
        <StepSelect steps={load.data?.steps ?? []} step={step} />
        <span class="spring" />
        {["collapsed", "speedscope"].map((format) => (
          <a key={format} class="button" href={api.url("flame", { ...query, format })} download={format === "speedscope" ? "stacks.speedscope.json" : "stacks.txt"}><Icon name="download" />{format}</a>
        ))}
      </Toolbar>
      <Await load={load} remedy="flame" tall>{(data) => <Chart data={data} />}</Await>
    </Frame>
  );
}

function Chart({ data }: { data: Flame }): JSX.Element {
  const tree = useMemo<Tree>(() => ({ names: data.names, name: data.nodes.name, parent: data.nodes.parent, weight: data.nodes.weight }), [data]);
  return (
    <Card title="Flame" note={data.left_out ? `${whole(data.left_out)} small parts left out` : ""}>
      <Icicle tree={tree} unit={data.unit} label="Flame" testid="chart-flame" />
    </Card>
  );
}
