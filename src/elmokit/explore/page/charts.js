// Charts of our own, in SVG: bars, a heat map, lines, shares.
import { colour, h, percent, s } from "./dom.js";

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Rows {label, value, text, mark}; with `pick` every row can be chosen. Values from 0 to `most`. */
export function bars(rows, { most, label = 110, width = 360, pick, title, series = 0 } = {}) {
  const row = 24;
  const top = most ?? Math.max(...rows.map((one) => one.value), 1e-12);
  const room = width - label - 14 - 7 * Math.max(6, ...rows.map((one) => (one.text ?? "").length));
  const made = rows.map((one, k) => {
    const size = Math.max(0, (one.value / top) * room);
    const choose = pick && { tabindex: 0, role: "button", class: "pick", onclick: () => pick(one), onkeydown: (e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), pick(one)) };
    return s(
      "g",
      { transform: `translate(0 ${k * row})`, ...choose },
      s("rect", { width, height: row, fill: "transparent", stroke: "none" }),
      s("text", { x: label - 8, y: 17, "text-anchor": "end", "font-size": 15, class: "word", "font-weight": one.mark ? 700 : 400 }, cut(one.label, Math.floor(label / 7.4)), one.label.length > label / 7.4 && s("title", {}, one.label)),
      s("rect", { class: "bar", x: label, y: 4, width: Math.max(size, 1.5), height: 16, rx: 2, fill: `var(--c${one.series ?? series})` }),
      s("text", { x: label + size + 6, y: 17, "font-size": 13, class: "faint" }, one.text ?? one.value.toFixed(2)),
    );
  });
  return s("svg", { viewBox: `0 0 ${width} ${rows.length * row}`, width, role: pick ? "group" : "img", "aria-label": title }, made);
}

/** A matrix of numbers from `low` to 1 as pixels, with words at its sides. `over` hears [row, column] or null. */
export function heatMap(values, rows, columns, { title, over, pick, mark } = {}) {
  const cell = Math.max(4, Math.min(40, 620 / Math.max(rows.length, columns.length)));
  const side = Math.min(120, 12 + 7.5 * Math.max(...rows.map((word) => word.length)));
  const head = Math.min(110, 12 + 7 * Math.max(...columns.map((word) => word.length)));
  const [W, H] = [side + cell * columns.length + 8, head + cell * rows.length + 8];
  const canvas = h("canvas", { width: columns.length, height: rows.length });
  const every = Math.ceil(13 / cell);
  const image = s("image", { class: "pixels", x: side, y: head, width: cell * columns.length, height: cell * rows.length, preserveAspectRatio: "none" });
  const frame = s("rect", { width: cell, height: cell, fill: "none", stroke: "var(--c1)", "stroke-width": 2, visibility: "hidden", "pointer-events": "none" });
  const texts = [
    rows.map((word, k) => k % every === 0 && s("text", { x: side - 5, y: head + cell * (k + 0.5) + 4.5, "font-size": 13, "text-anchor": "end", class: "word" }, cut(word, 15))),
    columns.map((word, k) => k % every === 0 && s("text", { transform: `translate(${side + cell * (k + 0.5) + 4} ${head - 5}) rotate(-60)`, "font-size": 13, class: "word" }, cut(word, 15))),
  ];
  const at = (event) => {
    const box = image.getBoundingClientRect();
    const c = Math.floor(((event.clientX - box.left) / box.width) * columns.length);
    const r = Math.floor(((event.clientY - box.top) / box.height) * rows.length);
    return r >= 0 && c >= 0 && r < rows.length && c < columns.length ? [r, c] : null;
  };
  const show = (place) => {
    frame.setAttribute("visibility", place ? "visible" : "hidden");
    if (place) {
      frame.setAttribute("x", side + cell * place[1]);
      frame.setAttribute("y", head + cell * place[0]);
    }
  };
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, width: W, role: "img", "aria-label": title }, texts, image, frame);
  svg.addEventListener("pointermove", (event) => (show(at(event)), over?.(at(event))));
  svg.addEventListener("pointerleave", () => (show(mark), over?.(null)));
  svg.addEventListener("click", (event) => at(event) && pick?.(at(event)));
  /** Other numbers in the same frame. */
  svg.paint = (numbers) => {
    const pixels = canvas.getContext("2d");
    const data = pixels.createImageData(columns.length, rows.length);
    const [low, high] = [rgb(colour("heat-low")), rgb(colour("heat"))];
    numbers.forEach((value, k) => {
      const t = Math.min(1, Math.max(0, value));
      for (let c = 0; c < 3; c++) data.data[4 * k + c] = low[c] + (high[c] - low[c]) * t;
      data.data[4 * k + 3] = 255;
    });
    pixels.putImageData(data, 0, 0);
    image.setAttribute("href", canvas.toDataURL());
  };
  svg.paint(values);
  show(mark);
  return svg;
}

export function rgb(text) {
  const hex = text.replace("#", "");
  return [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16));
}

/** Series {name, points: [[x, y]]} as lines, in one frame. */
export function lines(series, { title, x = "", y = "", width = 460, height = 230, steps = null, log = false } = {}) {
  const all = series.flatMap((one) => one.points);
  const f = log ? Math.log10 : (v) => v;
  const [x0, x1] = span(all.map((p) => p[0]), steps ? 0.2 : 0);
  const [y0, y1] = span(all.map((p) => f(p[1])), 0.05);
  const [left, right, top, bottom] = [54, 14 + Math.min(120, 7.4 * Math.max(...series.map((one) => one.name.length))), y ? 22 : 12, 34];
  const px = (v) => left + ((v - x0) / (x1 - x0)) * (width - left - right);
  const py = (v) => height - bottom - ((f(v) - y0) / (y1 - y0)) * (height - top - bottom);
  const marks = ticks(y0, y1, 4).map((v) => (log ? 10 ** v : v));
  const feet = steps ? steps.map((name, k) => [k, name]) : ticks(x0, x1, 5).map((v) => [v, short(v)]);
  const ends = spread(series.map((one) => py(one.points.at(-1)[1])), 15, top, height - bottom);
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, role: "img", "aria-label": title },
    marks.map((v) => [s("line", { class: "grid", x1: left, x2: width - right, y1: py(v), y2: py(v) }), s("text", { x: left - 6, y: py(v) + 4, "font-size": 12, "text-anchor": "end", class: "faint" }, short(v))]),
    feet.map(([v, name]) => s("text", { x: px(v), y: height - bottom + 17, "font-size": 12, "text-anchor": "middle", class: "faint" }, name)),
    s("text", { x: (left + width - right) / 2, y: height - 2, "font-size": 12, "text-anchor": "middle", class: "faint" }, x),
    s("text", { x: left - 48, y: 10, "font-size": 12, class: "faint" }, y),
    series.map((one, k) => [
      s("polyline", { points: one.points.map((p) => `${px(p[0]).toFixed(1)},${py(p[1]).toFixed(1)}`).join(" "), fill: "none", stroke: `var(--c${k % 8})`, "stroke-width": 2, "stroke-dasharray": ["none", "6 3", "2 3", "8 3 2 3"][k % 4] }),
      one.points.length < 30 && one.points.map((p) => s("circle", { cx: px(p[0]), cy: py(p[1]), r: 3.5, fill: `var(--c${k % 8})` }, s("title", {}, `${one.name}: ${p[1]}`))),
      s("text", { x: width - right + 7, y: ends[k] + 4, "font-size": 13, fill: `var(--c${k % 8})` }, cut(one.name, 17)),
    ]),
  );
}

/** A bar for each row {label, shares, note}, cut into layers. */
export function shares(rows, names, { title, width = 430 } = {}) {
  const [label, bar] = [128, 30];
  const room = width - label - 76;
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${rows.length * bar + 22}`, width, role: "img", "aria-label": title },
    rows.map((one, k) => {
      let at = label;
      return s(
        "g",
        { transform: `translate(0 ${k * bar})` },
        s("text", { x: label - 8, y: 19, "text-anchor": "end", "font-size": 13 }, cut(one.label, 17), s("title", {}, one.label)),
        one.shares.map((share, n) => {
          const x = at;
          at += share * room;
          return [s("rect", { x, y: 3, width: Math.max(share * room, 0.5), height: 23, fill: `var(--c${n})`, stroke: "var(--card)" }, s("title", {}, `${names[n]}: ${share.toFixed(3)}`)), share > 0.12 && s("text", { x: x + (share * room) / 2, y: 19, "font-size": 12, "text-anchor": "middle", class: "inbar" }, share.toFixed(2))];
        }),
        s("text", { x: at + 6, y: 19, "font-size": 12, class: "faint" }, one.note),
      );
    }),
    names.map((name, n) => [s("rect", { x: label + (n * room) / names.length, y: rows.length * bar + 8, width: 10, height: 10, fill: `var(--c${n})` }), s("text", { x: label + (n * room) / names.length + 14, y: rows.length * bar + 17, "font-size": 12 }, name)]),
  );
}

function span(values, room) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const more = (high - low) * room || (high === low ? Math.abs(high) * 0.1 || 1 : 0);
  return [low - more, high + more];
}

function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((size) => size >= rough);
  const made = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9; v += step) made.push(Math.abs(v) < 1e-12 ? 0 : v);
  return made;
}

/** Labels that would touch move apart. */
function spread(places, least, low, high) {
  const order = places.map((_, k) => k).sort((a, b) => places[a] - places[b]);
  const made = [...places];
  order.forEach((k, n) => n && (made[k] = Math.max(made[k], made[order[n - 1]] + least)));
  const over = Math.max(0, (made[order.at(-1)] ?? low) - high);
  return made.map((y) => Math.max(low, y - over));
}

const short = (v) => (Math.abs(v) >= 10_000 ? `${+(v / 1000).toPrecision(3)}k` : String(+v.toPrecision(3)));
export { percent };
