// SPDX-License-Identifier: Apache-2.0
import type { JSX } from "preact";
import { Frame, type ViewProps } from "./view";

export function View({ api }: ViewProps): JSX.Element {
  return <Frame name="kernel" ready={false}>{api.capture.run}</Frame>;
}
