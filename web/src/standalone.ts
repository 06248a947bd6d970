// SPDX-License-Identifier: Apache-2.0
import { render } from "./app";

void render();
