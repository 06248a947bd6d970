// SPDX-License-Identifier: Apache-2.0
// What every view is given, and the box it stands in.

import type { ComponentChildren, JSX } from "preact";
import type { Api } from "../api";

export interface ViewProps {
  readonly api: Api;
  /** "npu", "gpu", "cpu", or empty while unknown. */
  readonly device: string;
}

export function Frame(props: { name: string; ready: boolean; fill?: boolean; children: ComponentChildren }): JSX.Element {
  return (
    <div class={`view${props.fill ? " fill" : ""}`} data-testid={`view-${props.name}`} data-ready={props.ready ? "true" : "false"}>
      {props.children}
    </div>
  );
}

export function Toolbar({ children }: { children: ComponentChildren }): JSX.Element {
  return <div class="toolbar">{children}</div>;
}
