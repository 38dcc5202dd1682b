// Sentence: every token against every token, in each layer or a mix of them.
import { unpack } from "./api.js";
import { bars, heatMap } from "./charts.js";
import { beginning, calm, card, choice, ending, h, labelled, parted } from "./dom.js";
import { saves } from "./save.js";
import { quoted, shell } from "./code.js";

export const title = "Sentence";
const EXAMPLES = [
  ["bank", "He sat on the bank of the river.", "She paid it in at the bank."],
  ["play", "They play football in the park.", "The play was on at the theatre."],
  ["cell", "The prisoner slept in his cell.", "Each cell of the body has a nucleus."],
  ["spring", "In spring the trees turn green.", "A spring in the old watch broke."],
  ["light", "She carried a light bag.", "He turned off the light."],
  ["left", "They left the town at noon.", "Turn left at the church."],
];

export const defaults = (about) => ({ a: EXAMPLES[0][1], b: EXAMPLES[0][2], layer: String((about?.model.layers.length ?? 3) - 1), mix: "", gamma: "1", focus: "", index: about?.indexes.find((one) => one.fits && one.occurrences)?.name ?? "" });

export function mount(root, context) {
  const depth = context.about.model.layers.length;
  const names = context.about.model.layers;
  let [data, asked, wanted] = [null, null, null];
  const boxes = ["a", "b"].map((name, k) => h("textarea", { rows: 2, spellcheck: "false", dir: "auto", maxlength: 4000, oninput: () => typed() }));
  const typed = calm(() => context.set({ a: boxes[0].value, b: boxes[1].value, focus: "" }, { push: true }), 450);
  const examples = h("div", { class: "chips" }, h("span", { class: "note" }, "One word, two senses:"), EXAMPLES.map(([word, a, b]) => h("button", { type: "button", onclick: () => context.set({ a, b, focus: "" }) }, word)));
  const slider = h("input", { type: "range", min: 0, max: depth, step: 1, "aria-label": "Layer", oninput: (event) => context.set({ layer: event.target.value }, { push: false }) });
  const ticks = [...names, "mix"].map((name, k) => h("button", { type: "button", onclick: () => context.set({ layer: String(k) }) }, name));
  const mixers = names.map((name, k) => h("input", { type: "range", min: 0, max: 1, step: 0.01, "aria-label": `Weight of ${name}`, oninput: () => mixed() }));
  const gamma = h("input", { type: "range", min: 0.1, max: 3, step: 0.1, "aria-label": "gamma", oninput: () => mixed() });
  const told = names.map(() => h("output"));
  const gammaTold = h("output");
  const mixed = () => context.set({ mix: mixers.map((one) => (+one.value).toFixed(2)).join(","), gamma: gamma.value }, { push: false });
  const mixing = h("div", { class: "row" }, names.map((name, k) => labelled(h("span", {}, `s ${name} `, told[k]), mixers[k])), labelled(h("span", {}, "gamma ", gammaTold), gamma));
  const stage = h("div", { class: "two stage" });
  const beside = h("div");
  const matrix = h("div");
  const corpus = h("div");
  root.append(
    h("p", { class: "lead" }, "A word's vector depends on its sentence. Choose a word: all others are shaded by how alike their vectors are."),
    examples,
    h("div", { class: "two boxes" }, labelled("First sentence", boxes[0]), labelled("Second sentence (may be empty)", boxes[1])),
    stage,
    h("div", { class: "row" }, h("div", { class: "steps" }, slider, h("div", { class: "ticks" }, ticks)), h("p", { class: "note" }, "Layer of the vectors: token sees no context; mix is a sum of all.")),
    mixing,
    h("div", { class: "wide" }, matrix, beside),
    corpus,
  );

  /** Layer weights of the state: one layer, or the mix, which sums to 1. */
  function weights(state) {
    const layer = Math.min(Number(state.layer) || 0, depth);
    if (layer < depth) return { s: names.map((_, k) => Number(k === layer)), gamma: 1, name: names[layer] };
    const given = state.mix ? state.mix.split(",").map(Number) : names.map(() => 1);
    const sum = given.reduce((a, b) => a + b, 0) || 1;
    return { s: names.map((_, k) => (given[k] || 0) / sum), gamma: Number(state.gamma) || 1, name: "mix" };
  }

  /** Products and cosines of all tokens for these weights, row by row. */
  function measure({ s, gamma: g }) {
    const [L, , N] = data.products.shape;
    const made = new Float64Array(N * N);
    for (let i = 0; i < L; i++) for (let j = 0; j < L; j++) {
      const w = s[i] * s[j] * g * g;
      if (w) for (let k = 0, at = (i * L + j) * N * N; k < N * N; k++) made[k] += w * data.products[at + k];
    }
    const lengths = Array.from({ length: N }, (_, k) => Math.sqrt(Math.max(made[k * N + k], 1e-12)));
    return { cosines: made.map((value, k) => value / lengths[Math.floor(k / N)] / lengths[k % N]), lengths };
  }

  function focusOf(state) {
    const [first, second] = data.sentences;
    const given = Number(state.focus);
    if (state.focus !== "" && given >= 0 && given < data.tokens.length) return given;
    const other = new Set((second?.tokens ?? []).map((token) => token.text.toLowerCase()));
    const shared = first.tokens.map((token, k) => [k, token.text]).filter(([, text]) => other.has(text.toLowerCase()) && /\p{L}/u.test(text));
    return (shared.sort((x, y) => y[1].length - x[1].length)[0] ?? [0])[0];
  }

  function draw(state) {
    const { tokens, sentences } = data;
    const N = tokens.length;
    const chosen = weights(state);
    const { cosines, lengths } = measure(chosen);
    const focus = focusOf(state);
    stage.replaceChildren(...sentences.map((sentence, which) => h("section", { class: "card", "aria-label": which ? "Words of the second sentence" : "Words of the first sentence" }, line(sentence, which, cosines, focus))));
    shade(cosines, focus);
    const first = sentences[0].tokens.length;
    const mine = focus < first ? 0 : 1;
    const twin = twinOf(focus);
    const others = tokens.map((token, k) => ({ k, token, value: cosines[focus * N + k] })).filter((one) => (sentences.length > 1 ? one.token.which !== mine : one.k !== focus) && one.k < N);
    others.sort((x, y) => y.value - x.value);
    const near = others.slice(0, 6).map((one) => ({ label: one.token.text, value: Math.max(one.value, 0), text: one.value.toFixed(2), k: one.k }));
    const by = twin < 0 ? null : names.map((name, k) => ({ label: name, value: Math.max(cosineAt(k, focus, twin), 0), text: cosineAt(k, focus, twin).toFixed(2), mark: k === Number(state.layer) }));
    const chart = by && bars(by, { most: 1, label: 70, title: `Cosine of the two ${tokens[focus].text} by layer`, series: 1 });
    const list = bars(near, { most: 1, title: "Nearest words", pick: (one) => context.set({ focus: String(one.k) }) });
    beside.replaceChildren(
      ...(chart ? [card(`“${tokens[focus].text}” in both sentences`, [chart, h("p", { class: "note" }, "Cosine by layer. The lowest layer sees no context: there the word is the same.")], saves(`${tokens[focus].text} by layer`, { svg: () => chart, csv: () => [["layer", "cosine"], ...by.map((one) => [one.label, one.text])] }))] : []),
      card(`Nearest to “${tokens[focus].text}”${sentences.length > 1 ? " in the other sentence" : ""}`, [list, h("p", { class: "note" }, `Length of its vector: ${lengths[focus].toFixed(1)}`)], saves("nearest words", { svg: () => list, csv: () => [["word", "cosine"], ...near.map((one) => [one.label, one.text])] })),
    );
    heat(cosines, focus, chosen.name);
  }

  const cosineAt = (layer, a, b) => {
    const N = data.tokens.length;
    const at = (x, y) => data.products[(layer * depth + layer) * N * N + x * N + y];
    return at(a, b) / Math.sqrt(Math.max(at(a, a) * at(b, b), 1e-12));
  };

  const twinOf = (focus) => data.tokens.findIndex((token, k) => k !== focus && token.which !== data.tokens[focus].which && token.text.toLowerCase() === data.tokens[focus].text.toLowerCase());

  /** A sentence as it was written, every token a button. */
  function line(sentence, which, cosines, focus) {
    const [parts, part] = [[], parted(sentence.text)];
    let at = 0;
    sentence.tokens.forEach((token, k) => {
      const number = token.number;
      parts.push(part(at, token.start));
      parts.push(h("button", { type: "button", "data-token": number, class: [number === focus ? "focus" : "", token.unknown ? "unknown" : ""].join(" "), "aria-pressed": null, onclick: () => context.set({ focus: String(number) }), onpointerenter: () => shadeOnly(number), onfocus: () => shadeOnly(number), onpointerleave: () => shadeOnly(focusOf(context.state)) }, token.text));
      at = token.end;
    });
    parts.push(part(at));
    return h("p", { class: "words", dir: "auto" }, parts);
  }

  const shadeOnly = (number) => data && shade(measure(weights(context.state)).cosines, number);

  function shade(cosines, focus) {
    const N = data.tokens.length;
    for (const button of stage.querySelectorAll("button[data-token]")) {
      const value = Math.max(0, cosines[focus * N + Number(button.dataset.token)]);
      button.style.background = `color-mix(in srgb, var(--accent) ${Math.round(46 * value ** 1.5)}%, transparent)`;
      button.title = `${button.textContent}: cosine ${cosines[focus * N + Number(button.dataset.token)].toFixed(2)}`;
    }
  }

  let map = null;
  /** The frame of the map is made once per pair of sentences; a change of layer paints its pixels only. */
  function heat(cosines, focus, name) {
    const { tokens, sentences } = data;
    const first = sentences[0].tokens.length;
    const [rows, columns] = sentences.length > 1 ? [tokens.slice(0, first), tokens.slice(first)] : [tokens, tokens];
    const values = rows.flatMap((a) => columns.map((b) => cosines[a.number * tokens.length + b.number]));
    if (map?.data === data) {
      map.values = values;
      map.svg.paint(values);
      map.note.textContent = caption(name);
      return;
    }
    const note = h("p", { class: "note", "aria-live": "off" }, caption(name));
    const svg = heatMap(values, rows.map((one) => one.text), columns.map((one) => one.text), {
      title: "Every token of the first sentence against every token of the second",
      over: (place) => (note.textContent = place ? `${rows[place[0]].text} – ${columns[place[1]].text}: cosine ${map.values[place[0] * columns.length + place[1]].toFixed(3)}` : caption(weights(context.state).name)),
      pick: (place) => context.set({ focus: String(rows[place[0]].number) }),
    });
    map = { svg, data, values, note };
    const table = () => [["", ...columns.map((one) => one.text)], ...rows.map((one, r) => [one.text, ...columns.map((_, c) => +map.values[r * columns.length + c].toFixed(4))])];
    matrix.replaceChildren(card("Every token against every token", [h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Heat map" }, svg), note], saves("heat map", { svg: () => svg, csv: table })));
  }
  const caption = (name) => `Layer ${name}: the stronger the colour, the more alike (cosine from 0 to 1).`;

  async function near(state) {
    const fitting = context.about.indexes.filter((one) => one.fits && one.occurrences);
    const without = context.about.indexes.some((one) => one.occurrences) ? "No index was made with this model, so no nearest words of a text stand here." : "With an index of a text (elmokit index TEXT -o INDEX, then elmokit explore INDEX), the nearest words of that text stand here.";
    if (!fitting.length) return corpus.replaceChildren(h("p", { class: "note" }, without));
    const token = data.tokens[focusOf(state)];
    const key = JSON.stringify([state.index, data.sentences[token.which].text, token.place]);
    if (wanted === key) return;
    wanted = key;
    try {
      const found = await context.ask("nearest", "nearest", { index: state.index, text: data.sentences[token.which].text, position: token.place });
      if (!found || wanted !== key) return;
      const pick = fitting.length > 1 ? choice(fitting.map((one) => [one.name, one.name]), state.index, (index) => context.set({ index }), { "aria-label": "Index" }) : null;
      const list = h("ol", { class: "near" }, found.contexts.map((one) => h("li", {}, h("span", { class: "num" }, one.score.toFixed(2)), h("span", { class: "text", dir: "auto" }, ending(one.left, 70), h("b", {}, one.word), beginning(one.right, 70)))));
      corpus.replaceChildren(card(`Nearest to “${found.word}” in ${state.index}`, [pick, list, h("p", { class: "note" }, `Layers of the index: ${found.layers}. `, found.words.length ? `By mean vectors, whatever the sentence: ${found.words.map((one) => one.word).join(", ")}.` : "")], saves("nearest in corpus", { csv: () => [["cosine", "before", "word", "after"], ...found.contexts.map((one) => [+one.score.toFixed(4), one.left, one.word, one.right])] })));
    } catch (error) {
      corpus.replaceChildren(context.wrong(error));
    }
  }

  async function update(state) {
    boxes.forEach((box, k) => document.activeElement !== box && (box.value = state["ab"[k]]));
    const chosen = weights(state);
    slider.value = Math.min(Number(state.layer), depth);
    slider.setAttribute("aria-valuetext", chosen.name);
    ticks.forEach((tick, k) => tick.setAttribute("aria-pressed", String(k === Number(slider.value))));
    mixing.hidden = chosen.name !== "mix";
    chosen.s.forEach((share, k) => {
      if (document.activeElement !== mixers[k]) mixers[k].value = chosen.name === "mix" && state.mix ? state.mix.split(",")[k] : share;
      told[k].textContent = share.toFixed(2);
    });
    gamma.value = state.gamma;
    gammaTold.textContent = chosen.gamma.toFixed(1);
    const key = JSON.stringify([state.a, state.b]);
    if (asked !== key) {
      asked = key;
      try {
        const found = await context.ask("sentence", "sentence", { texts: [state.a, state.b] });
        if (!found || asked !== key) return;
        let number = 0;
        found.sentences.forEach((one, which) => one.tokens.forEach((token, place) => Object.assign(token, { which, place, number: number++ })));
        data = { ...found, products: unpack(found.products), tokens: found.sentences.flatMap((one) => one.tokens) };
      } catch (error) {
        data = asked = null;
        [beside, matrix, corpus].forEach((part) => part.replaceChildren());
        return stage.replaceChildren(context.wrong(error));
      }
    }
    if (!data) return;
    const now = context.state;
    draw(now);
    near(now);
  }

  return {
    update,
    theme: () => data && ((map = null), draw(context.state)),
    destroy: () => typed.stop(),
    code(state) {
      const chosen = weights(state);
      const layers = chosen.name === "mix" ? `weights:${chosen.s.map((x) => x.toFixed(4)).join(",")}*${chosen.gamma}` : String(names.indexOf(chosen.name));
      const texts = [state.a, state.b].filter((text) => text.trim());
      const word = data ? data.tokens[focusOf(state)].text : "word";
      const load = context.about.model.given ? `load_encoder(${quoted(context.about.model.given)})` : "load_encoder()";
      return {
        python: `import numpy as np\nfrom elmokit.encoders import load_encoder\n\nencoder = ${load}\nfirst, second = encoder.encode_tokens([${[texts[0], texts[1] ?? texts[0]].map(quoted).join(", ")}], layers=${quoted(layers)}, normalise=True)\ncosines = first @ second.T  # a row for each token of the first sentence\nprint(np.round(cosines, 2))`,
        command: `elmokit compare ${texts.map(shell).join(" ")} --word ${shell(word)}${context.about.model.given ? ` -m ${shell(context.about.model.given)}` : ""}`,
      };
    },
  };
}
