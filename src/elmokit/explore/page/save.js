// Files to keep: pictures as SVG and PNG, tables as CSV.
import { colour, h } from "./dom.js";

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "image-rendering"];

export function download(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** An SVG element as a file that needs no style sheet. */
export function svgText(svg) {
  const copy = svg.cloneNode(true);
  const ours = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, k) => {
    const style = getComputedStyle(ours[k]);
    if (!["title", "desc"].includes(element.tagName)) for (const name of KEPT) element.setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "tabindex", "role"]) element.removeAttribute(name);
  });
  const [x, y, width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.insertAdjacentElement("afterbegin", Object.assign(document.createElementNS("http://www.w3.org/2000/svg", "rect")));
  const back = copy.firstChild;
  for (const [name, value] of Object.entries({ x, y, width, height, fill: colour("card") })) back.setAttribute(name, value);
  return new XMLSerializer().serializeToString(copy);
}

export async function pngOf(text, scale = 2) {
  const image = new Image();
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    image.src = url;
    await image.decode();
    const canvas = h("canvas", { width: Math.ceil(image.naturalWidth * scale), height: Math.ceil(image.naturalHeight * scale) });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** Rows of cells as CSV (RFC 4180). A cell that a spreadsheet would take for a formula gets a quote before it. */
export function csvText(rows) {
  const cell = (value) => {
    let text = String(value ?? "");
    if (/^[=+\-@\t\r]/.test(text) && !/^-?[\d.e-]+$/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `\ufeff${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

/** Buttons for a card. `svg` gives an element or the text of a file, `csv` gives rows. */
export function saves(name, { svg, csv }) {
  const text = () => {
    const made = svg();
    return typeof made === "string" ? made : svgText(made);
  };
  const button = (label, what, work) => h("button", { type: "button", class: "small", "aria-label": `Save ${what} as ${label}`, onclick: work }, label);
  const file = (suffix) => `${name.replaceAll(/[^\p{L}\p{N}]+/gu, "-")}.${suffix}`;
  return h(
    "span",
    { class: "saves" },
    svg && button("SVG", name, () => download(file("svg"), new Blob([text()], { type: "image/svg+xml" }))),
    svg && button("PNG", name, async () => download(file("png"), await pngOf(text()))),
    csv && button("CSV", name, () => download(file("csv"), new Blob([csvText(csv())], { type: "text/csv" }))),
  );
}
