// A cloud of points on a canvas: up to 20,000, drawn pixel by pixel, moved from layer to layer, chosen by lasso or box.
import { COLOURS, colour, h, s } from "./dom.js";
import { rgb } from "./charts.js";

export const SHAPES = 5;
const MORPH = 450; // milliseconds from one layer to another

/** Whether (x, y) from -1 to 1 lies within a shape, and how much of the pixel. */
const inside = [
  (x, y, r) => clamp((1 - Math.hypot(x, y)) * r + 0.5),
  (x, y, r) => clamp((0.85 - Math.max(Math.abs(x), Math.abs(y))) * r + 0.5),
  (x, y, r) => clamp(Math.min(0.75 - y, (y + 1.1 - 1.9 * Math.abs(x)) / 2.1) * r + 0.5),
  (x, y, r) => clamp(((1.15 - Math.abs(x) - Math.abs(y)) / 1.4) * r + 0.5),
  (x, y, r) => clamp((Math.min(Math.abs(x), Math.abs(y)) < 0.32 ? (1 - Math.max(Math.abs(x), Math.abs(y))) * r + 0.5 : 0)),
];
const clamp = (v) => Math.min(1, Math.max(0, v));

/** The sign of a series, for legends. */
export function markOf(series) {
  const paths = ["", "M2 2h12v12H2z", "M8 1.5 15 14H1z", "M8 1l7 7-7 7-7-7z", "M6 1h4v5h5v4h-5v5H6v-5H1V6h5z"];
  const fill = `var(--c${series % COLOURS})`;
  const shape = series % SHAPES ? s("path", { d: paths[series % SHAPES], fill }) : s("circle", { cx: 8, cy: 8, r: 6.5, fill });
  return s("svg", { class: "mark", viewBox: "0 0 16 16", "aria-hidden": "true" }, shape);
}

export class Cloud {
  /** `chosen` hears of a new selection (a Uint8Array or null), `over` of the point under the pointer, or -1. */
  constructor({ label, chosen, over, text }) {
    this.chosen = chosen;
    this.over = over;
    this.text = text;
    this.base = h("canvas", { "aria-hidden": "true" });
    this.top = h("canvas", { class: "over", tabindex: 0, role: "img", "aria-label": `${label}. Arrow keys go from point to point, Enter chooses, Escape clears.` });
    this.tip = h("div", { class: "tip", hidden: true, dir: "auto" });
    this.element = h("div", { class: "cloud" }, this.base, this.top, this.tip);
    this.count = 0;
    this.series = new Uint8Array(0);
    this.mask = null;
    this.hover = -1;
    this.tool = "lasso";
    this.view = { x: 0, y: 0, zoom: 1 };
    this.frames = 0;
    this.path = null;
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.element);
    this.listen();
  }

  /** Points (n, 2) from about -1 to 1; moves there from where the points were. */
  move(points) {
    const same = this.count === points.length / 2 && this.at;
    this.count = points.length / 2;
    this.from = same ? this.at.slice() : points;
    this.to = points;
    this.at = this.from.slice();
    this.began = same && !matchMedia("(prefers-reduced-motion: reduce)").matches ? performance.now() : -Infinity;
    if (!same) this.view = { x: 0, y: 0, zoom: 1 };
    if (this.series.length !== this.count) this.series = new Uint8Array(this.count);
    if (this.mask && this.mask.length !== this.count) this.mask = null;
    this.hover = -1;
    this.draw();
  }

  colours(series) {
    this.series = series;
    this.draw();
  }

  /** Marks a selection without telling of it. */
  select(mask) {
    this.mask = mask;
    this.draw();
  }

  point(number) {
    if (number === this.hover) return;
    this.hover = number;
    this.tip.hidden = number < 0;
    if (number >= 0) this.tip.textContent = this.text(number);
    this.drawOver();
  }

  destroy() {
    this.watcher.disconnect();
    cancelAnimationFrame(this.timer);
  }

  resize() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const [w, height] = [this.element.clientWidth, this.element.clientHeight];
    if (!w || !height) return;
    this.ratio = ratio;
    for (const canvas of [this.base, this.top]) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(height * ratio);
    }
    this.image = null;
    this.draw();
  }

  draw() {
    if (this.timer) return;
    this.timer = requestAnimationFrame((now) => {
      this.timer = 0;
      this.paint(now);
    });
  }

  paint(now) {
    if (!this.to || !this.base.width) return;
    const t = clamp((now - this.began) / MORPH);
    const eased = t < 0.5 ? 2 * t * t : 1 - 2 * (1 - t) * (1 - t);
    const { at, from, to } = this;
    if (t < 1 || this.settled !== to) for (let k = 0; k < to.length; k++) at[k] = from[k] + (to[k] - from[k]) * eased;
    this.settled = t < 1 ? null : to;
    this.place();
    this.raster();
    this.drawOver();
    this.frames++;
    if (t < 1) this.draw();
  }

  /** Where each point is on the canvas, in device pixels. */
  place() {
    const { width, height } = this.base;
    const half = (Math.min(width, height) / 2) * 0.9 * this.view.zoom;
    const wide = Math.min(width / height, 1.4);
    if (!this.px || this.px.length !== this.count) [this.px, this.py] = [new Float32Array(this.count), new Float32Array(this.count)];
    for (let k = 0; k < this.count; k++) {
      this.px[k] = width / 2 + (this.at[2 * k] - this.view.x) * half * wide;
      this.py[k] = height / 2 - (this.at[2 * k + 1] - this.view.y) * half;
    }
  }

  radius() {
    return this.ratio * (this.count > 8000 ? 2.6 : this.count > 2000 ? 3.4 : this.count > 400 ? 4.4 : 5.5);
  }

  raster() {
    const { width, height } = this.base;
    const pixels = this.base.getContext("2d");
    this.image ??= pixels.createImageData(width, height);
    const data = this.image.data;
    const back = rgb(colour("card"));
    new Uint32Array(data.buffer).fill((255 << 24) | (back[2] << 16) | (back[1] << 8) | back[0]);
    const palette = Array.from({ length: COLOURS }, (_, k) => rgb(colour(`c${k}`)));
    const r = this.radius();
    const stamps = inside.map((shape) => stamp(shape, r));
    const passes = this.mask ? [0, 1] : [1];
    for (const pass of passes) {
      const strength = this.mask && !pass ? 0.13 : 0.82;
      for (let k = 0; k < this.count; k++) {
        if (this.mask && this.mask[k] !== pass) continue;
        const series = this.series[k];
        blit(data, width, height, stamps[series % SHAPES], this.px[k], this.py[k], palette[series % COLOURS], strength);
      }
    }
    pixels.putImageData(this.image, 0, 0);
  }

  drawOver() {
    const pen = this.top.getContext("2d");
    const { width, height } = this.top;
    pen.clearRect(0, 0, width, height);
    if (this.hover >= 0 && this.px) {
      pen.strokeStyle = colour("ink");
      pen.lineWidth = 2 * this.ratio;
      pen.beginPath();
      pen.arc(this.px[this.hover], this.py[this.hover], this.radius() + 3 * this.ratio, 0, 7);
      pen.stroke();
    }
    if (this.path?.length > 1) {
      pen.strokeStyle = colour("accent");
      pen.lineWidth = 1.5 * this.ratio;
      pen.setLineDash([5 * this.ratio, 3 * this.ratio]);
      pen.beginPath();
      outline(this.path, this.tool).forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.closePath();
      pen.stroke();
      pen.setLineDash([]);
    }
  }

  /** Points within a polygon of device pixels. */
  within(polygon) {
    const mask = new Uint8Array(this.count);
    const [xs, ys] = [polygon.map((p) => p[0]), polygon.map((p) => p[1])];
    const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    for (let k = 0; k < this.count; k++) {
      const [x, y] = [this.px[k], this.py[k]];
      if (x < x0 || x > x1 || y < y0 || y > y1) continue;
      let odd = 0;
      for (let a = 0, b = xs.length - 1; a < xs.length; b = a++) {
        if (ys[a] > y !== ys[b] > y && x < ((xs[b] - xs[a]) * (y - ys[a])) / (ys[b] - ys[a]) + xs[a]) odd ^= 1;
      }
      mask[k] = odd;
    }
    return mask;
  }

  nearest(x, y) {
    let [best, least] = [-1, (14 * this.ratio) ** 2];
    for (let k = 0; k < this.count; k++) {
      const d = (this.px[k] - x) ** 2 + (this.py[k] - y) ** 2;
      if (d < least) [best, least] = [k, d];
    }
    return best;
  }

  choose(mask) {
    this.mask = mask && mask.includes(1) ? mask : null;
    this.draw();
    this.chosen(this.mask);
  }

  listen() {
    const at = (event) => {
      const box = this.top.getBoundingClientRect();
      return [(event.clientX - box.left) * this.ratio, (event.clientY - box.top) * this.ratio];
    };
    let start = null;
    this.top.addEventListener("pointerdown", (event) => {
      if (event.button || !this.px) return;
      this.top.setPointerCapture(event.pointerId);
      start = { at: at(event), view: { ...this.view } };
      this.path = this.tool === "move" ? null : [start.at];
    });
    this.top.addEventListener("pointermove", (event) => {
      if (!this.px) return;
      const [x, y] = at(event);
      if (!start) {
        const near = this.nearest(x, y);
        this.point(near);
        this.over(near);
      } else if (this.tool === "move") {
        const half = (Math.min(this.base.width, this.base.height) / 2) * 0.9 * this.view.zoom;
        const wide = Math.min(this.base.width / this.base.height, 1.4);
        this.view.x = start.view.x - (x - start.at[0]) / half / wide;
        this.view.y = start.view.y + (y - start.at[1]) / half;
        this.draw();
      } else {
        this.path.push([x, y]);
        if (this.path.length > 2) this.mask = this.within(outline(this.path, this.tool));
        this.draw();
      }
    });
    const end = (event) => {
      if (!start) return;
      const path = this.path;
      const far = Math.hypot(at(event)[0] - start.at[0], at(event)[1] - start.at[1]) > 3 || path?.length > 3;
      start = this.path = null;
      if (!path) return;
      if (far) return this.choose(this.within(outline(path, this.tool)));
      const near = this.nearest(...path[0]);
      const mask = event.shiftKey && this.mask ? this.mask.slice() : new Uint8Array(this.count);
      if (near >= 0) mask[near] = 1;
      this.choose(near >= 0 ? mask : null);
    };
    this.top.addEventListener("pointerup", end);
    this.top.addEventListener("pointercancel", end);
    this.top.addEventListener("pointerleave", () => !start && (this.point(-1), this.over(-1)));
    this.top.addEventListener("wheel", (event) => (event.preventDefault(), this.zoom(Math.exp(-event.deltaY / 400))), { passive: false });
    this.top.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step && this.count) {
        this.point((Math.max(this.hover, step > 0 ? -1 : 0) + step + this.count) % this.count);
        this.over(this.hover);
        this.top.setAttribute("aria-label", this.text(this.hover));
      } else if (event.key === "Enter" && this.hover >= 0) {
        const mask = event.shiftKey && this.mask ? this.mask.slice() : new Uint8Array(this.count);
        mask[this.hover] = 1;
        this.choose(mask);
      } else if (event.key === "Escape") this.choose(null);
      else if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? 1.25 : 0.8);
      else return;
      event.preventDefault();
    });
  }

  zoom(by) {
    this.view.zoom = Math.min(40, Math.max(0.5, this.view.zoom * by));
    this.draw();
  }

  /** The picture as the text of an SVG file. */
  svg(title, legend) {
    const { width, height } = this.base;
    const [w, hh] = [width / this.ratio, height / this.ratio];
    const r = this.radius() / this.ratio;
    const bits = [`<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${hh + 26}" viewBox="0 0 ${w} ${hh + 26}"><title>${escaped(title)}</title><rect width="100%" height="100%" fill="${colour("card")}"/>`];
    const paint = (pass, opacity) => {
      for (let k = 0; k < this.count; k++) {
        if (this.mask && this.mask[k] !== pass) continue;
        const fill = colour(`c${this.series[k] % COLOURS}`);
        const [x, y] = [(this.px[k] / this.ratio).toFixed(1), (this.py[k] / this.ratio).toFixed(1)];
        bits.push(svgShape(this.series[k] % SHAPES, x, y, r, fill, opacity));
      }
    };
    if (this.mask) paint(0, 0.15);
    paint(1, 0.85);
    let x = 8;
    for (const [series, name] of legend) {
      bits.push(svgShape(series % SHAPES, x + 5, hh + 13, 5, colour(`c${series % COLOURS}`), 1));
      bits.push(`<text x="${x + 15}" y="${hh + 17}" font-family="sans-serif" font-size="12" fill="${colour("ink")}">${escaped(name)}</text>`);
      x += 30 + 7 * name.length;
    }
    return `${bits.join("")}</svg>`;
  }
}

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function svgShape(shape, x, y, r, fill, opacity) {
  const look = `fill="${fill}" fill-opacity="${opacity}"`;
  if (shape === 0) return `<circle cx="${x}" cy="${y}" r="${r}" ${look}/>`;
  const paths = ["", "M-.85-.85H.85V.85H-.85z", "M0-1 1 .75H-1z", "M0-1.15 1.15 0 0 1.15-1.15 0z", "M-.32-1H.32V-.32H1V.32H.32V1H-.32V.32H-1V-.32H-.32z"];
  return `<path transform="translate(${x} ${y}) scale(${r})" d="${paths[shape]}" ${look}/>`;
}

/** What was drawn, as a polygon: the path of a lasso, or the box between its ends. */
function outline(path, tool) {
  if (tool !== "box") return path;
  const [[x0, y0], [x1, y1]] = [path[0], path.at(-1)];
  return [[x0, y0], [x1, y0], [x1, y1], [x0, y1]];
}

function stamp(shape, r) {
  const size = Math.ceil(r + 1);
  const side = 2 * size + 1;
  const cover = new Float32Array(side * side);
  for (let y = 0; y < side; y++) for (let x = 0; x < side; x++) cover[y * side + x] = shape((x - size) / r, (y - size) / r, r);
  return { size, side, cover };
}

function blit(data, width, height, { size, side, cover }, px, py, [r, g, b], strength) {
  const [left, top] = [Math.round(px) - size, Math.round(py) - size];
  if (left < 0 || top < 0 || left + side > width || top + side > height) return;
  for (let y = 0, k = 0; y < side; y++) {
    let at = 4 * ((top + y) * width + left);
    for (let x = 0; x < side; x++, k++, at += 4) {
      const a = cover[k] * strength;
      if (a === 0) continue;
      data[at] += (r - data[at]) * a;
      data[at + 1] += (g - data[at + 1]) * a;
      data[at + 2] += (b - data[at + 2]) * a;
    }
  }
}
