// SPDX-License-Identifier: Apache-2.0
// The Trace view: the timeline of one worker, with the others of its run beside it when they are asked for.

import type { JSX } from "preact";
import { selection } from "../state";
import { TimelineBox } from "./timeline";
import type { ViewProps } from "./view";

export function View({ api }: ViewProps): JSX.Element {
  const { run } = selection.value;
  const workers = (run?.workers ?? []).flatMap((worker) => {
    const span = worker.spans[0];
    return span ? [{ run: run!.name, worker: worker.name, span: span.name, version: span.version }] : [];
  });
  return (
    <div class="view fill">
      <TimelineBox api={api} workers={workers} />
    </div>
  );
}
