// Model: what is loaded, what its layers know, and trainings while they run.
import { bars, lines } from "./charts.js";
import { card, choice, count, h, labelled, terminal } from "./dom.js";
import { saves } from "./save.js";
import { mixCards } from "./tasks.js";
import { quoted, shell } from "./code.js";

export const title = "Model";
const EVERY = 2000; // milliseconds between looks at a run

export const defaults = (about) => ({ index: about?.indexes.find((one) => one.fits && one.occurrences)?.name ?? "", run: about?.runs[0] ?? "" });

export function mount(root, context) {
  const { model, indexes, tasks, probes, runs } = context.about;
  const fitting = indexes.filter((one) => one.fits && one.occurrences);
  const [context_, curves] = [h("div"), h("div")];
  let [asked, timer, shown, measured] = [null, 0, "", null];
  const contextSaves = saves("context by layer", { svg: () => measured.chart, csv: () => [["layer", "same word", "other words"], ...measured.layers.map((one) => [one.layer, one.same, one.others])] });
  contextSaves.hidden = true;
  const pick = choice(fitting.map((one) => [one.name, one.name]), "", (index) => context.set({ index }), { "aria-label": "Index" });
  const runPick = choice(runs.map((name) => [name, name]), "", (run) => context.set({ run }), { "aria-label": "Run" });
  root.append(h("p", { class: "lead" }, "What is loaded, what its layers hold, and trainings while they run."), h("div", { class: "packed" }, facts(), parts(), fitting.length ? card("How much the layers depend on the context", [fitting.length > 1 ? labelled("Index", pick) : null, context_], contextSaves) : null, ...probeCards(), ...mixCards(tasks), texts(), runs.length ? card("Training", [runs.length > 1 ? labelled("Run", runPick) : null, curves]) : trainingNote()));

  function facts() {
    const p = model.parts;
    const rows = [
      ["model", model.given ?? "the bundled model"],
      ["read from", model.source],
      ["vectors", `${model.layers.length} layers (${model.layers.join(", ")}) of ${model.width}`],
      ["context", { both: "the words on both sides", left: "the words to the left", right: "the words to the right", none: "no other word" }[model.context]],
      ["runs in", `${model.arithmetic} on ${model.device}`],
      ["tokenizer", model.tokenizer],
      p && ["vocabulary", p.vocabulary === null ? "none" : `${count(p.vocabulary)} words`],
      p && ["LSTM", `${p.lstm.layers} layers of ${p.lstm.cell} cells${p.lstm.projection ? `, projected to ${p.lstm.projection}` : ""}`],
      ["fingerprint", model.fingerprint],
    ].filter(Boolean);
    return card("What is loaded", h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])), saves("model", { csv: () => rows }));
  }

  function parts() {
    if (!model.parts) return null;
    const all = Object.entries(model.parts.parameters).filter(([name]) => name !== "total");
    const chart = bars(all.map(([label, value]) => ({ label, value, text: count(value) })), { label: 130, width: 400, title: "Parameters by part" });
    return card(`${count(model.parts.parameters.total)} parameters`, chart, saves("parameters", { svg: () => chart, csv: () => [["part", "parameters"], ...all] }));
  }

  function texts() {
    if (!indexes.length) return null;
    const rows = indexes.map((one) => [one.name, count(one.occurrences), count(one.words), one.layers, one.fits ? "yes" : "another model"]);
    const heads = ["index", "occurrences", "words", "layers", "of this model"];
    return card("Indexes", h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table of indexes" }, h("table", {}, h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell))))))), saves("indexes", { csv: () => [heads, ...rows] }));
  }

  function probeCards() {
    const labels = [...new Set(probes.map((one) => one.label))];
    if (!labels.length) return [card("Probes", [h("p", {}, "What a linear classifier reads from each layer. Measure it, and give the file:"), terminal("elmokit probe train.conllu dev.conllu -o probes.json\nelmokit explore --probe probes.json")])];
    return labels.map((label) => {
      const rows = probes.filter((one) => one.label === label);
      const chart = bars(rows.map((one) => ({ label: one.view, value: one.accuracy, text: `${(100 * one.accuracy).toFixed(1)}%` })), { most: 1, title: `Probe of ${label}` });
      return card(`Probe: ${label}`, [chart, h("p", { class: "note" }, `Accuracy of a linear classifier (${rows[0].encoder}, ${rows[0].file}).`)], saves(`probe ${label}`, { svg: () => chart, csv: () => [["layers", "accuracy", "control"], ...rows.map((one) => [one.view, one.accuracy, one.control])] }));
    });
  }

  function trainingNote() {
    return card("Training", [h("p", {}, "The curves of a run, while it trains: give its folder."), terminal("elmokit pretrain corpus.txt -o run --preset tiny --minutes 4\nelmokit explore --run run")]);
  }

  async function layers(state) {
    if (!fitting.length || asked === state.index) return;
    asked = state.index;
    try {
      const found = await context.ask("layers", "layers", { index: state.index });
      if (!found) return;
      const steps = found.layers.map((one) => one.layer);
      const series = [["same word", "same"], ["other words", "others"]].map(([name, key]) => ({ name, points: found.layers.map((one, k) => [k, one[key]]).filter((p) => p[1] !== null) })).filter((one) => one.points.length);
      const chart = lines(series, { title: "Mean cosine by layer", y: "mean cosine", steps });
      context_.replaceChildren(chart, h("p", { class: "note" }, `Two occurrences of the same word in different sentences, and two different words; ${count(found.sentences)} sentences of ${state.index}. The nearer the lines, the more a vector says of the context.`));
      measured = { chart, layers: found.layers };
      contextSaves.hidden = false;
    } catch (error) {
      context_.replaceChildren(context.wrong(error));
    }
  }

  async function watch() {
    const { run, view } = context.state;
    if (!runs.length || view !== "model") return;
    try {
      const found = await context.ask("run", "run", { name: run });
      if (found && JSON.stringify(found) !== shown) {
        shown = JSON.stringify(found);
        const wanted = Object.entries(found.curves).filter(([name]) => name !== "epoch");
        const charts = wanted.map(([name, points]) => {
          const chart = lines([{ name: "", points }], { title: `${name} by ${found.along}`, x: found.along, y: name.replaceAll("_", " "), height: 170, log: name.startsWith("perplexity") });
          return h("div", {}, chart, saves(`${found.name} ${name}`, { svg: () => chart, csv: () => [[found.along, name], ...points] }));
        });
        curves.replaceChildren(...(charts.length ? charts : [h("p", { class: "note" }, "Nothing is written yet; the curves come as the run goes on.")]));
      }
    } catch (error) {
      curves.replaceChildren(context.wrong(error));
    }
    clearTimeout(timer);
    timer = setTimeout(watch, EVERY);
  }

  return {
    update(state) {
      pick.value = state.index;
      runPick.value = state.run;
      layers(state);
      watch();
    },
    destroy: () => clearTimeout(timer),
    code: () => ({
      python: `from elmokit.encoders import load_encoder\n\nencoder = load_encoder(${model.given ? quoted(model.given) : ""})\nprint(encoder.info)\nprint(encoder.layer_names, encoder.width, encoder.arithmetic)`,
      command: `elmokit info${model.given ? ` ${shell(model.given)}` : ""}`,
    }),
  };
}
