// Blank: words for a gap, and how probable a sentence is, word by word.
import { bars } from "./charts.js";
import { calm, card, h, labelled, parted, percent, s } from "./dom.js";
import { saves } from "./save.js";
import { quoted, shell } from "./code.js";

export const title = "Blank";
const EXAMPLES = ["He sat on the ___ of the river.", "The prime ___ resigned on Monday.", "She opened the ___ and read the letter.", "The cat sat on the parliament.", "He drank a cup of hot algebra."];
const SHOWN = { "</S>": "(end of sentence)", "<S>": "(start of sentence)" };
const GAP = /(?<![0-9A-Za-z_])__+(?![0-9A-Za-z_])/;

export const defaults = () => ({ text: EXAMPLES[0], n: "12" });

export function mount(root, context) {
  let asked = null;
  const box = h("textarea", { rows: 2, spellcheck: "false", dir: "auto", maxlength: 4000, oninput: () => typed() });
  const typed = calm(() => context.set({ text: box.value }), 450);
  const out = h("div");
  const number = h("input", { type: "number", min: 1, max: 50, onchange: (event) => context.set({ n: event.target.value }) });
  const lead = "Put ___ where a word is missing: the model reads what stands left of it, and what stands right. Without a blank, every word of the sentence is weighed.";
  root.append(h("p", { class: "lead" }, lead), h("div", { class: "chips" }, EXAMPLES.map((text) => h("button", { type: "button", onclick: () => context.set({ text }) }, text))), h("div", { class: "row" }, h("div", { class: "steps grow" }, labelled("Sentence", box)), labelled("Candidates", number), h("button", { type: "button", onclick: () => blankAt() }, "Insert ___")), out);

  /** A blank where the cursor is, or in the place of what is selected. */
  function blankAt() {
    const [a, b] = [box.selectionStart, box.selectionEnd];
    const clean = box.value.replace(GAP, "").length === box.value.length ? box.value : null;
    if (clean === null) return box.focus();
    const text = `${clean.slice(0, a).replace(/(\S)$/, "$1 ")}___${clean.slice(b).replace(/^([^\s.,;:!?])/, " $1")}`;
    context.set({ text });
  }

  function fill(found, state) {
    const titles = { left: "From the left", right: "From the right", both: "From both sides" };
    const cards = Object.entries(titles).map(([side, name], k) => {
      const words = found[side];
      if (!words) return card(name, h("p", { class: "note" }, "The model does not read in this direction."));
      const rows = words.map((one) => ({ label: SHOWN[one.word] ?? one.word, value: one.probability, text: percent(one.probability), word: one.word }));
      const chart = bars(rows, { title: name, series: [0, 2, 1][k], pick: (one) => context.set({ text: state.text.replace(GAP, () => one.word) }) });
      return card(name, chart, saves(name, { svg: () => chart, csv: () => [["word", "probability"], ...words.map((one) => [one.word, one.probability])] }));
    });
    out.replaceChildren(h("div", { class: "two" }, cards), h("p", { class: "note" }, "Choose a word to put it into the sentence. Probabilities are among all words that may stand there; both sides together: left times right, divided by how frequent the word is."));
  }

  function score(found, state) {
    const [parts, part] = [[], parted(found.text)];
    let at = 0;
    found.tokens.forEach((token, k) => {
      parts.push(part(at, token.start));
      const name = [found.surprising[k] ? "odd" : "", found.unknown[k] ? "unknown" : ""].join(" ");
      const told = [found.forward && `from the left ${percent(Math.exp(found.forward[k]))}`, found.backward && `from the right ${percent(Math.exp(found.backward[k]))}`].filter(Boolean).join(", ");
      parts.push(h("button", { type: "button", class: name, title: `${token.text}: ${told}${found.surprising[k] ? "; surprising" : ""}${found.unknown[k] ? "; not in the vocabulary" : ""}`, "aria-label": `${token.text}, ${told}${found.surprising[k] ? ", surprising" : ""}. Make it a blank.`, onclick: () => context.set({ text: `${part(0, token.start)}___${part(token.end)}` }) }, token.text));
      at = token.end;
    });
    parts.push(part(at));
    const chart = wordByWord(found);
    const table = () => [["word", "from the left", "from the right", "surprising"], ...found.tokens.map((token, k) => [token.text, found.forward && Math.exp(found.forward[k]), found.backward && Math.exp(found.backward[k]), found.surprising[k] ? "yes" : ""])];
    const total = ["forward", "backward"].filter((side) => found.totals[side] !== null).map((side) => `${side === "forward" ? "left to right" : "right to left"} ${found.totals[side].toFixed(1)}`).join(", ");
    out.replaceChildren(
      card("Surprising words", [h("p", { class: "words", dir: "auto" }, parts), h("p", { class: "note" }, "Underlined: the sentence makes the word less likely than its frequency alone. Choose a word to make it a blank.")]),
      card("Word by word", [chart, h("p", { class: "note" }, `Log probability of the sentence: ${total}. Perplexity ${found.perplexity.toFixed(1)}. Longer bars: more probable.`)], saves("word by word", { svg: () => chart, csv: table })),
    );
  }

  /** Two bars a word, on a scale of logarithms from one in a million to 1. */
  function wordByWord(found) {
    const [row, label, room] = matchMedia("(max-width: 560px)").matches ? [25, 86, 62] : [25, 118, 190];
    const size = (logp) => Math.max(0, 1 + logp / Math.log(1e6)) * room;
    const W = label + 2 * room + 130;
    const column = (values, x, series) => values && values.map((logp, k) => [s("rect", { x, y: 30 + k * row + 4, width: Math.max(1.5, size(logp)), height: 16, rx: 2, fill: `var(--c${found.surprising[k] ? 1 : series})` }), s("text", { x: x + size(logp) + 5, y: 30 + k * row + 17, "font-size": 12, class: "faint" }, percent(Math.exp(logp)))]);
    return s(
      "svg",
      { viewBox: `0 0 ${W} ${34 + row * found.tokens.length}`, width: W, role: "img", "aria-label": "Probability of each word from both sides" },
      s("text", { x: label, y: 16, "font-size": 13, class: "faint" }, "from the left"),
      s("text", { x: label + room + 65, y: 16, "font-size": 13, class: "faint" }, "from the right"),
      found.tokens.map((token, k) => s("text", { x: label - 8, y: 30 + k * row + 17, "text-anchor": "end", "font-size": 15, class: "word", "font-weight": found.surprising[k] ? 700 : 400 }, `${found.surprising[k] ? "● " : ""}${token.text.slice(0, Math.floor(label / 7.4))}`)),
      column(found.forward, label, 0),
      column(found.backward, label + room + 65, 2),
    );
  }

  return {
    async update(state) {
      if (document.activeElement !== box) box.value = state.text;
      number.value = state.n;
      if (!context.about.predicts) return out.replaceChildren(card("No language model", h("p", {}, "The loaded model gives vectors, not probabilities. Start with an ELMo that has a softmax: elmokit explore, without -m, loads one.")));
      const key = JSON.stringify([state.text, state.n]);
      if (asked === key) return;
      asked = key;
      try {
        const found = await context.ask("blank", "blank", { text: state.text, n: Number(state.n) || 12 });
        if (!found || asked !== key) return;
        found.kind === "fill" ? fill(found, state) : score(found, state);
      } catch (error) {
        out.replaceChildren(context.wrong(error));
      }
    },
    destroy: () => typed.stop(),
    code(state) {
      const given = context.about.model.given;
      const load = `from elmokit.lm import LanguageModel\n\nlm = LanguageModel.from_pretrained(${given ? quoted(given) : ""})\n`;
      const flag = given ? ` -m ${shell(given)}` : "";
      if (GAP.test(state.text)) return { python: `${load}found = lm.fill(${quoted(state.text)}, n=${Number(state.n) || 12})\nfor candidate in found.both:\n    print(candidate.word, candidate.probability)`, command: `elmokit predict ${shell(state.text)} --top ${Number(state.n) || 12}${flag}` };
      return { python: `${load}score = lm.score(${quoted(state.text)})\nfor word, forward, backward in zip(score.tokens, score.forward, score.backward[1:]):\n    print(word, forward, backward)`, command: `elmokit perplexity ${shell(state.text)} --per-sentence${flag}` };
    },
  };
}
