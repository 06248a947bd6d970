// SPDX-License-Identifier: Apache-2.0
// Findings: rules that hit, worst first, and those that could not be applied.

import type { JSX } from "preact";
import { Card } from "../ui/controls";
import { useLoad } from "../ui/load";
import { Await, Empty } from "../ui/messages";
import { inLanguage, t } from "../words";
import { type Finding, FindingItem } from "./finding";
import { Frame, type ViewProps } from "./view";

interface Findings {
  readonly findings: readonly Finding[];
  readonly not_applicable: readonly { readonly rule: string; readonly because: string; readonly because_zh: string }[];
}

export function View({ api }: ViewProps): JSX.Element {
  const load = useLoad(JSON.stringify(api.capture), (options) => api.get<Findings>("findings", {}, options));
  return (
    <Frame name="findings" ready={!load.busy}>
      <Await load={load} tall>
        {(data) => (
          <div class="stack first">
            {data.findings.length === 0 ? <Empty title={t("No findings")} /> : (
              <Card title={`${data.findings.length} ${t("findings")}`} testid="findings">
                <ul class="findings">{data.findings.map((finding, at) => <FindingItem key={at} finding={finding} />)}</ul>
              </Card>
            )}
            {data.not_applicable.length > 0 && (
              <Card title={t("not applicable")}>
                <table class="plain"><tbody>{data.not_applicable.map((one) => <tr key={one.rule}><td><code>{one.rule}</code></td><td>{inLanguage({ en: one.because, zh: one.because_zh })}</td></tr>)}</tbody></table>
              </Card>
            )}
          </div>
        )}
      </Await>
    </Frame>
  );
}
