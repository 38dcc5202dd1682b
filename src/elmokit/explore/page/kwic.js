// The concordance: a line for each occurrence, the word in the middle. Only the lines in sight are in the page.
import { RTL, count, h } from "./dom.js";
import { markOf } from "./cloud.js";

const ROW = 26;
const compare = new Intl.Collator(undefined, { sensitivity: "base", numeric: true }).compare;
const backwards = (text) => text.trim().split(/\s+/).reverse().join(" ");

export class Concordance {
  /** `picked` hears (number, event) of a line, `over` the number under the pointer or -1. */
  constructor({ picked, over }) {
    this.picked = picked;
    this.lines = [];
    this.columns = [];
    this.order = [];
    this.focus = -1;
    this.body = h("tbody");
    this.head = h("tr");
    this.table = h("table", { "aria-label": "Concordance" }, h("thead", {}, this.head), this.body);
    this.element = h("div", { class: "kwic", tabindex: 0, role: "region", "aria-label": "Concordance. Arrow keys go through the lines, Enter chooses one." }, this.table);
    this.summary = h("p", { class: "note" });
    this.element.addEventListener("scroll", () => this.show());
    this.body.addEventListener("click", (event) => this.numberAt(event) >= 0 && picked(this.numberAt(event), event));
    this.body.addEventListener("pointerover", (event) => over(this.numberAt(event)));
    this.element.addEventListener("pointerleave", () => over(-1));
    this.element.addEventListener("keydown", (event) => this.key(event, over));
    this.watcher = new ResizeObserver(() => this.show());
    this.watcher.observe(this.element);
  }

  destroy() {
    this.watcher.disconnect();
  }

  numberAt(event) {
    const row = event.target.closest("tr[data-number]");
    return row ? Number(row.dataset.number) : -1;
  }

  key(event, over) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 }[event.key];
    if (step) {
      const at = Math.min(Math.max(this.order.indexOf(this.focus) + step, 0), this.order.length - 1);
      this.focus = this.order[at] ?? -1;
      this.element.scrollTop = Math.min(Math.max(this.element.scrollTop, (at + 2) * ROW - this.element.clientHeight + ROW), at * ROW);
      over(this.focus);
      this.show();
    } else if (event.key === "Enter" && this.focus >= 0) this.picked(this.focus, event);
    else return;
    event.preventDefault();
  }

  /** Lines [left, word, right]; columns {name, of(number) -> text, mark(number) -> series, width}. */
  set(lines, columns) {
    this.lines = lines;
    this.columns = columns;
    this.element.dir = lines.length && RTL.test(lines[0][1]) ? "rtl" : "ltr";
    const heads = [...columns.map((one) => h("th", { scope: "col", class: one.class }, one.name)), h("th", { scope: "col", class: "before" }, "before"), h("th", { scope: "col", class: "at" }, "word"), h("th", { scope: "col" }, "after")];
    const words = lines.slice(0, 500).map((line) => line[1].length);
    const widths = [...columns.map((one) => one.width), "", `${(0.6 * Math.max(5, ...words) + 1).toFixed(1)}rem`, ""];
    heads.forEach((cell, k) => widths[k] && (cell.style.width = widths[k]));
    this.head.replaceChildren(...heads);
  }

  /** Shows these lines, sorted. */
  list(numbers, { by, scores, label, text, mask }) {
    const { lines } = this;
    const keys = text ?? {
      left: (k) => backwards(lines[k][0]),
      right: (k) => lines[k][2].trim(),
    }[by];
    const values = { score: (k) => -(scores?.[k] ?? 0), group: (k) => label?.[k] ?? 0 }[by];
    this.order = [...numbers];
    if (keys) {
      const made = new Map(this.order.map((k) => [k, keys(k)]));
      this.order.sort((a, b) => compare(made.get(a), made.get(b)) || a - b);
    } else if (values) this.order.sort((a, b) => values(a) - values(b) || a - b);
    this.mask = mask;
    this.summary.textContent = mask ? `${count(this.order.length)} of ${count(lines.length)} lines: those selected.` : `${count(lines.length)} lines.`;
    this.element.scrollTop = 0;
    this.show();
  }

  show() {
    const room = Math.ceil((this.element.clientHeight || 400) / ROW) + 6;
    const first = Math.max(0, Math.min(Math.floor(this.element.scrollTop / ROW) - 3, this.order.length - room));
    const some = this.order.slice(first, first + room);
    const spacer = (n) => {
      const cell = h("td", { colspan: this.columns.length + 3 });
      cell.style.height = `${n * ROW}px`;
      return h("tr", { class: "spacer", "aria-hidden": "true" }, cell);
    };
    this.table.setAttribute("aria-rowcount", this.order.length + 1);
    this.body.replaceChildren(spacer(first), ...some.map((k, n) => this.row(k, first + n)), spacer(Math.max(0, this.order.length - first - some.length)));
  }

  row(number, at) {
    const [left, word, right] = this.lines[number];
    const cells = this.columns.map((one) => h("td", { class: one.class, title: one.of(number) }, one.mark ? [markOf(one.mark(number)), " "] : null, h("span", {}, one.of(number))));
    return h(
      "tr",
      { "data-number": number, "aria-rowindex": at + 2, class: number === this.focus ? "chosen" : null },
      cells,
      h("td", { class: "before" }, h("span", {}, h("bdi", { dir: "auto" }, left.trim()))),
      h("td", { class: "at", dir: "auto" }, word),
      h("td", { dir: "auto" }, right.trim()),
    );
  }

  /** What is listed, as rows for a CSV file. */
  rows() {
    const head = [...this.columns.map((one) => one.name), "before", "word", "after"];
    return [head, ...this.order.map((k) => [...this.columns.map((one) => one.of(k)), this.lines[k][0].trim(), this.lines[k][1], this.lines[k][2].trim()])];
  }
}
