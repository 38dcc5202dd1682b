// The occurrences of a word: cloud, groups and concordance, each following the other. The Word and Change views share it.
import { unpack } from "./api.js";
import { Cloud, markOf } from "./cloud.js";
import { beginning, card, choice, count, ending, h, labelled, percent } from "./dom.js";
import { Concordance } from "./kwic.js";
import { saves } from "./save.js";

export const usual = { layer: "", colour: "group", sort: "corpus", groups: "auto", tool: "lasso", projection: "pca", pick: "" };
const AT_ONCE = 1500; // occurrences whose other layers are computed without being asked for
const SORTS = { corpus: "as in the corpus", left: "word before", right: "word after", score: "similarity to a line", group: "group" };

export class Uses {
  /** `colours` are what points can be coloured by; `of` gives {indexes, word, limit} for the server. */
  constructor(context, { colours, sorts = {} }) {
    Object.assign(this, { context, data: null, mask: null, groups: null, similar: null, asked: {} });
    this.cloud = new Cloud({ label: "Occurrences as points", chosen: (mask) => this.chosen(mask), over: (k) => this.over(k), text: (k) => this.data.lines[k].join("") });
    this.kwic = new Concordance({ picked: (k, event) => this.picked(k, event), over: (k) => this.cloud.point(k) });
    this.layers = h("input", { type: "range", min: 0, step: 1, "aria-label": "Layer", oninput: (e) => this.layer(Number(e.target.value)) });
    this.ticks = h("div", { class: "ticks" });
    this.more = h("button", { type: "button", class: "small", onclick: () => this.load({ layers: "all" }) }, "Compute the other layers");
    this.by = choice([], "", (colour) => context.set({ colour }, { push: false }));
    this.tools = ["lasso", "box", "move"].map((tool) => h("button", { type: "button", class: "small", onclick: () => context.set({ tool }, { push: false }) }, tool));
    this.clear = h("button", { type: "button", class: "small", onclick: () => this.cloud.choose(null) }, "Clear selection");
    this.sort = choice([], "", (sort) => context.set({ sort }, { push: false }));
    this.offered = { by: colours, sort: { ...SORTS, ...sorts } };
    this.number = choice([["auto", "by silhouette"], ...[1, 2, 3, 4, 5, 6, 7, 8].map((k) => [String(k), String(k)])], "auto", (groups) => context.set({ groups }));
    this.projection = choice(context.about.projections.map((name) => [name, name.toUpperCase()]), "pca", (projection) => context.set({ projection }, { push: false }));
    this.legend = h("div", { class: "legend" });
    this.summary = h("p", { class: "note" });
    this.senses = h("div", { class: "tall", tabindex: 0, role: "group", "aria-label": "Groups in detail" });
    const zoom = [["+", 1.25, "Zoom in"], ["−", 0.8, "Zoom out"]].map(([sign, by, name]) => h("button", { type: "button", class: "small", "aria-label": name, onclick: () => this.cloud.zoom(by) }, sign));
    const picture = () => this.cloud.svg(`Occurrences of ${this.data.word}`, this.series().names.map((name, k) => [k, name]));
    const points = () => [["before", "word", "after", "source", ...this.data.fields.map((one) => one.name), "group", "x", "y"], ...this.data.lines.map((line, k) => [...line.map((part) => part.trim()), this.sourceOf(k), ...this.data.fields.map((one) => one.at(k)), this.groups ? this.groups.labels[k] + 1 : "", +this.cloud.to[2 * k].toFixed(4), +this.cloud.to[2 * k + 1].toFixed(4)])];
    this.element = h(
      "div",
      { hidden: true },
      h("div", { class: "row" }, h("div", { class: "steps" }, this.layers, this.ticks), this.more, labelled("Colour", this.by), labelled("Groups", this.number), context.about.projections.length > 1 && labelled("Projection", this.projection)),
      h("div", { class: "wide" }, card("Occurrences", [this.cloud.element, h("div", { class: "row" }, h("div", { class: "chips", role: "group", "aria-label": "Selecting" }, this.tools, zoom, this.clear), this.legend), this.summary], saves("occurrences", { svg: picture, csv: points })), card("Groups", this.senses, saves("groups", { csv: () => this.groupRows() }))),
      card("Concordance", [h("div", { class: "row" }, labelled("Sort by", this.sort), this.kwic.summary), this.kwic.element], saves("concordance", { csv: () => this.kwic.rows() })),
    );
  }

  destroy() {
    this.cloud.destroy();
    this.kwic.destroy();
  }

  theme() {
    this.cloud.draw();
  }

  sourceOf(k) {
    return this.data.indexes.length > 1 ? this.data.indexes[this.data.side[k]] : this.data.sources[this.data.source[k]];
  }

  /** Shows {indexes, word, limit}; asks the server only for what changed. */
  async show(what, state) {
    this.what = what;
    const key = JSON.stringify([what, state.projection]);
    if (this.asked.word !== key) {
      this.asked = { word: key };
      await this.load({ layers: state.projection === "pca" ? "own" : "some" });
    } else this.apply(state);
  }

  async load({ layers }) {
    const { context, what } = this;
    const key = this.asked.word;
    const found = await context.ask("word", "word", { ...what, layers, projection: context.state.projection });
    if (!found || key !== this.asked.word) return;
    const same = this.data?.word === found.word && String(this.data.indexes) === String(found.indexes);
    this.data = { ...found, key, side: unpack(found.side), source: unpack(found.source), fields: found.fields.map(fieldOf), apart: found.apart && unpack(found.apart), layers: found.layers.map((one) => ({ name: one.name, points: unpack(one.points) })) };
    if (!same) Object.assign(this, { mask: null, groups: null, similar: null });
    for (const control of ["by", "sort"]) this[control].replaceChildren(...Object.entries({ ...this.offered[control], ...Object.fromEntries(this.data.fields.map((one) => [one.key, one.name])) }).map(([value, name]) => h("option", { value }, name)));
    this.layers.max = found.layers.length - 1;
    this.ticks.replaceChildren(...found.layers.map((one, k) => h("button", { type: "button", onclick: () => this.layer(k) }, one.name)));
    this.more.hidden = !found.more;
    this.layers.disabled = found.layers.length < 2;
    this.element.hidden = false;
    this.shownPoints = null;
    this.summary.textContent = `${count(found.lines.length)}${found.total > found.lines.length ? ` of ${count(found.total)}` : ""} occurrences of ${found.spelled.join(", ")}.${found.more ? " The index holds one layer; the others take a run of the model over these sentences." : ""}`;
    const state = context.state;
    if (state.pick && !this.mask) {
      const mask = new Uint8Array(found.lines.length);
      state.pick.split(",").forEach((k) => Number(k) < mask.length && (mask[Number(k)] = 1));
      this.mask = mask.includes(1) ? mask : null;
    }
    this.apply(state);
    if (layers === "own" && found.more && found.lines.length <= AT_ONCE) await this.load({ layers: "all" });
  }

  layer(k) {
    this.context.set({ layer: this.data.layers[k].name }, { push: false });
  }

  layerNow(state) {
    const at = this.data.layers.findIndex((one) => one.name === state.layer);
    return at >= 0 ? at : this.data.layers.findIndex((one) => one.name === this.data.own);
  }

  apply(state) {
    if (this.data?.key !== this.asked.word) return; // the answer for a newer question is on its way
    const at = this.layerNow(state);
    const layer = this.data.layers[at];
    this.layers.value = at;
    this.layers.setAttribute("aria-valuetext", layer.name);
    [...this.ticks.children].forEach((tick, k) => tick.setAttribute("aria-pressed", String(k === at)));
    Object.entries({ by: "colour", sort: "sort", number: "groups", projection: "projection" }).forEach(([control, name]) => (this[control].value = state[name]));
    this.cloud.tool = state.tool;
    this.tools.forEach((one) => one.setAttribute("aria-pressed", String(one.textContent === state.tool)));
    if (this.shownPoints !== layer.points) this.cloud.move(layer.points);
    this.shownPoints = layer.points;
    this.group(layer.name, state);
    const now = [this.data, this.groups, this.mask, this.similar, state.colour, state.sort];
    if (now.every((one, k) => one === this.listed?.[k])) return; // the layer alone has changed
    this.listed = now;
    this.colour();
    this.list();
  }

  /** Groups are those of the layer in sight; the lowest one has none to tell, so there those of the index's own stay. */
  async group(layer, state) {
    const flat = layer === this.data.layers[0].name && this.data.layers.length > 1 && layer !== this.data.own;
    const key = JSON.stringify([this.asked.word, flat ? this.data.own : layer, state.groups]);
    if (this.asked.groups === key) return;
    this.asked.groups = key;
    try {
      const found = await this.context.ask("groups", "groups", { ...this.what, layer: flat ? this.data.own : layer, clusters: state.groups === "auto" ? null : Number(state.groups) });
      if (!found || this.asked.groups !== key) return;
      this.groups = { ...found, labels: unpack(found.labels) };
      this.colour();
      this.list();
      this.tellGroups();
      if (!this.context.about.predicts) return;
      const said = await this.context.ask("substitutes", "substitutes", { ...this.what, examples: found.groups.map((one) => one.examples) });
      if (!said || this.asked.groups !== key) return;
      this.groups.said = said.groups;
      this.tellGroups();
    } catch (error) {
      this.senses.replaceChildren(this.context.wrong(error));
    }
  }

  tellGroups() {
    const { groups, data } = this;
    const tried = Object.entries(groups.silhouettes).map(([k, value]) => `${k}: ${value.toFixed(2)}`).join(", ");
    this.senses.replaceChildren(
      ...groups.groups.map((one, k) =>
        h(
          "div",
          { class: "group" },
          h("div", { class: "legend" }, h("button", { type: "button", title: "Select this group", onclick: () => this.cloud.choose(Uint8Array.from(groups.labels, (label) => Number(label === k))) }, markOf(k), h("b", {}, `Group ${k + 1}`)), h("span", {}, `${count(one.size)} (${percent(one.size / data.lines.length)}), silhouette ${one.silhouette.toFixed(2)}`)),
          one.around.length ? h("p", { class: "note" }, `around it: ${one.around.join(", ")}`) : null,
          groups.said?.[k]?.length ? h("p", { class: "note" }, `in its place: ${groups.said[k].map((w) => w.word).join(", ")}`) : null,
          one.examples.slice(0, 3).map((n) => h("p", { class: "line", dir: "auto" }, ending(data.lines[n][0], 45), h("b", {}, data.lines[n][1]), beginning(data.lines[n][2], 45))),
        ),
      ),
      h("p", { class: "note" }, tried ? `Silhouette by number of groups: ${tried}.` : "One occurrence: nothing to group."),
    );
  }

  groupRows() {
    const { groups } = this;
    if (!groups) return [["group"]];
    return [["group", "size", "silhouette", "around", "in its place"], ...groups.groups.map((one, k) => [k + 1, one.size, +one.silhouette.toFixed(4), one.around.join(" "), (groups.said?.[k] ?? []).map((w) => w.word).join(" ")])];
  }

  /** What the points are coloured by: a number for each, and the names of the numbers. */
  series() {
    const { data, groups } = this;
    const by = this.by.value;
    if (by === "source") return few(data.lines.map((_, k) => data.sources[data.source[k]]));
    const field = data.fields.find((one) => one.key === by);
    if (field) return field.series(data.lines.length);
    if (by === "side") return { labels: Uint8Array.from(data.side), names: data.indexes };
    if (by === "spelling") return few(data.lines.map((line) => line[1]));
    if (by === "before") return few(data.lines.map((line) => line[0].trim().split(/\s+/).at(-1).toLowerCase() || "(start)"));
    if (by === "after") return few(data.lines.map((line) => line[2].trim().split(/\s+/)[0].toLowerCase() || "(end)"));
    return { labels: groups ? Uint8Array.from(groups.labels) : new Uint8Array(data.lines.length), names: groups ? groups.groups.map((_, k) => `group ${k + 1}`) : ["all"] };
  }

  colour() {
    const { labels, names } = this.series();
    this.cloud.colours(labels);
    this.legend.replaceChildren(...names.map((name, k) => h("button", { type: "button", title: "Select these", onclick: () => this.cloud.choose(Uint8Array.from(labels, (label) => Number(label === k))) }, markOf(k), h("span", { dir: "auto" }, name))));
  }

  list() {
    const { data, groups, context } = this;
    const state = context.state;
    const score = (values) => ({ name: "like", class: "num aside", width: "3.6rem", of: (k) => values[k].toFixed(2) });
    const coloured = data.fields.find((one) => one.key === this.by.value);
    const shown = coloured?.series(data.lines.length);
    const columns = [
      groups && { name: "group", class: "tight", width: "3.6rem", of: (k) => String(groups.labels[k] + 1), mark: (k) => groups.labels[k] },
      (data.indexes.length > 1 || data.sources.length > 1) && { name: "source", class: "aside", width: "6.5rem", of: (k) => this.sourceOf(k), mark: data.indexes.length > 1 && this.by.value === "side" ? (k) => data.side[k] : null },
      ...data.fields.map((one) => ({ name: one.name, class: "aside", width: "6.5rem", of: one.at, mark: coloured === one ? (k) => shown.labels[k] : null })),
      state.sort === "apart" && data.apart && { ...score(data.apart), name: "apart" },
      this.similar && state.sort === "score" && score(this.similar),
    ].filter(Boolean);
    this.kwic.set(data.lines, columns);
    this.cloud.select(this.mask);
    this.clear.hidden = !this.mask;
    const all = Array.from(data.lines.keys());
    const scores = state.sort === "apart" ? data.apart : this.similar;
    this.kwic.list(this.mask ? all.filter((k) => this.mask[k]) : all, { by: state.sort === "apart" ? "score" : state.sort, scores, label: groups?.labels, text: data.fields.find((one) => one.key === state.sort)?.at, mask: this.mask });
    if (state.sort === "score" && !this.similar) this.kwic.summary.textContent += " Choose a line, and the others are sorted by how like it they are.";
  }

  /** The cloud tells of a selection. */
  chosen(mask) {
    if (this.data?.key !== this.asked.word) return;
    this.mask = mask;
    const picked = mask ? Array.from(mask.keys()).filter((k) => mask[k]) : [];
    this.context.set({ pick: picked.length && picked.length <= 60 ? picked.join(",") : undefined }, { push: false });
  }

  over(k) {
    this.kwic.focus = k;
    if (k >= 0) this.kwic.show();
  }

  /** A line was chosen: its point is marked, and with it the similarity of all others is known. */
  async picked(k, event) {
    const state = this.context.state;
    this.kwic.focus = k;
    if (state.sort === "score") {
      const { data } = this;
      const found = await this.context.ask("similar", "similar", { ...this.what, number: k, layer: data.layers[this.layerNow(state)].name });
      if (!found || data !== this.data) return;
      this.similar = unpack(found.scores);
      this.mask = null;
      this.list();
      return this.cloud.point(k);
    }
    const mask = event.shiftKey && this.mask ? this.mask.slice() : new Uint8Array(this.data.lines.length);
    mask[k] = 1;
    this.cloud.choose(mask);
    this.cloud.point(k);
  }
}

/** A field that the index keeps: its value at an occurrence, and the occurrences as series for colours. */
function fieldOf({ name, values, value }) {
  const numbers = unpack(value);
  const at = (k) => values[numbers[k]];
  const series = (n) => {
    const all = Array.from({ length: n }, (_, k) => at(k));
    return values.length > 8 && values.every((one) => one === "" || Number.isFinite(Number(one))) ? ranges(all) : few(all.map((one) => one || "(none)"), true);
  };
  return { name, key: `field ${name}`, at, series };
}

/** Many numbers: up to six ranges of about as many occurrences each, and those without a number. */
function ranges(values) {
  const sorted = values.filter((one) => one !== "").map(Number).sort((a, b) => a - b);
  const cuts = [...new Set([1, 2, 3, 4, 5].map((k) => sorted[Math.floor((k * sorted.length) / 6)]))].filter((cut) => cut > sorted[0]);
  const of = (value) => (value === "" ? cuts.length + 1 : cuts.filter((cut) => Number(value) >= cut).length);
  const labels = Uint8Array.from(values, of);
  const names = [...cuts, null].map((_, k) => {
    const inside = sorted.filter((value) => of(value) === k);
    return inside[0] === inside.at(-1) ? String(inside[0]) : `${inside[0]} to ${inside.at(-1)}`;
  });
  return { labels, names: labels.includes(cuts.length + 1) ? [...names, "(none)"] : names };
}

/** The seven most frequent values, and the others together. */
function few(values, sorted = false) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  const order = [...counts].sort((a, b) => b[1] - a[1]).map(([value]) => value);
  const names = order.length > 8 ? [...order.slice(0, 7), "others"] : order;
  if (sorted && order.length <= 8) names.sort(new Intl.Collator(undefined, { numeric: true }).compare);
  const places = new Map(names.map((name, k) => [name, k]));
  return { labels: Uint8Array.from(values, (value) => places.get(value) ?? names.length - 1), names };
}
