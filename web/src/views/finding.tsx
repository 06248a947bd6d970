// SPDX-License-Identifier: Apache-2.0
// One finding: how bad, what, evidence, what to do.

import type { JSX } from "preact";
import { auto } from "../format";
import { openView, slugOf } from "../state";
import { Icon } from "../ui/icons";
import { inLanguage, t } from "../words";

export interface Finding {
  readonly rule: string;
  readonly severity: "high" | "medium" | "low" | "info";
  readonly title: string;
  readonly title_zh: string;
  readonly detail: string;
  readonly detail_zh: string;
  readonly gain_us: number | null;
  readonly action: string;
  readonly action_zh: string;
  readonly view: string | null;
  readonly slices?: readonly number[];
}

export function FindingItem({ finding }: { finding: Finding }): JSX.Element {
  const slice = finding.slices?.[0];
  return (
    <li class="finding" data-severity={finding.severity} data-rule={finding.rule}>
      <span class="severity">{t(finding.severity)}</span>
      <div>
        <strong>{inLanguage({ en: finding.title, zh: finding.title_zh })}</strong>
        <p>{inLanguage({ en: finding.detail, zh: finding.detail_zh })}</p>
        {finding.action && <p><b>{t("What to do")}:</b> {inLanguage({ en: finding.action, zh: finding.action_zh })}</p>}
        <p class="row">
          <code class="muted">{finding.rule}</code>
          {finding.view && (
            <button type="button" class="link" onClick={() => openView(slugOf(finding.view!), slice !== undefined && finding.view === "Trace" ? { slice: String(slice) } : {})}>
              <Icon name={finding.view === "Trace" ? "trace" : "right"} /> {finding.view}
            </button>
          )}
        </p>
      </div>
      {finding.gain_us !== null && finding.gain_us > 0 && (
        <span class="gain"><b>{auto(finding.gain_us, "us")}</b><small>{t("estimated gain")}</small></span>
      )}
    </li>
  );
}
