// SPDX-License-Identifier: Apache-2.0
// TensorBoard imports this module inside the tab's frame and calls render().
export async function render() {
  const app = await import("./static/app.js");
  return app.render();
}
