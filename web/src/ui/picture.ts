// SPDX-License-Identifier: Apache-2.0
// Charts as shapes: the same list becomes SVG text or a PNG, without loading an image (which a strict CSP forbids).

export type Shape =
  | { readonly kind: "path"; readonly d: string; readonly fill?: string; readonly stroke?: string; readonly width?: number }
  | { readonly kind: "text"; readonly x: number; readonly y: number; readonly text: string; readonly fill: string; readonly size?: number; readonly anchor?: "start" | "middle" | "end"; readonly bold?: boolean };

export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly background: string;
  readonly shapes: readonly Shape[];
}

const FONT = "system-ui, sans-serif";
const escape = (text: string): string => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

export function svgText(picture: Picture): string {
  const body = picture.shapes.map((shape) => {
    if (shape.kind === "path") return `<path d="${shape.d}" fill="${shape.fill ?? "none"}" stroke="${shape.stroke ?? "none"}" stroke-width="${shape.width ?? 1}"/>`;
    const weight = shape.bold ? ' font-weight="600"' : "";
    return `<text x="${shape.x}" y="${shape.y}" fill="${shape.fill}" font-size="${shape.size ?? 12}" text-anchor="${shape.anchor ?? "start"}"${weight}>${escape(shape.text)}</text>`;
  });
  const { width, height } = picture;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${FONT}"><rect width="100%" height="100%" fill="${picture.background}"/>${body.join("")}</svg>`;
}

export function pngOf(picture: Picture): Promise<Blob> {
  const scale = 2;
  const canvas = document.createElement("canvas");
  canvas.width = picture.width * scale;
  canvas.height = picture.height * scale;
  const pen = canvas.getContext("2d")!;
  pen.scale(scale, scale);
  pen.fillStyle = picture.background;
  pen.fillRect(0, 0, picture.width, picture.height);
  for (const shape of picture.shapes) {
    if (shape.kind === "path") {
      const path = new Path2D(shape.d);
      if (shape.fill && shape.fill !== "none") {
        pen.fillStyle = shape.fill;
        pen.fill(path);
      }
      if (shape.stroke) {
        pen.strokeStyle = shape.stroke;
        pen.lineWidth = shape.width ?? 1;
        pen.stroke(path);
      }
    } else {
      pen.fillStyle = shape.fill;
      pen.font = `${shape.bold ? "600 " : ""}${shape.size ?? 12}px ${FONT}`;
      pen.textAlign = shape.anchor === "middle" ? "center" : (shape.anchor ?? "start");
      pen.fillText(shape.text, shape.x, shape.y);
    }
  }
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png"));
}

/** A colour of the current theme. */
export const themeColour = (name: string): string => getComputedStyle(document.querySelector(".stepscope") ?? document.body).getPropertyValue(`--${name}`).trim();
