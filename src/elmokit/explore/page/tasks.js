// Tasks: what trained models find in a text.
import { bars, shares } from "./charts.js";
import { calm, card, choice, h, labelled, parted, percent, terminal } from "./dom.js";
import { saves } from "./save.js";
import { quoted, shell } from "./code.js";

export const title = "Tasks";
const TEXTS = {
  spans: ["Marie Curie left Warsaw for Paris, where she worked at the University of Paris.", ""],
  classes: ["A quiet film that stays with you for days.", ""],
  answer: ["The bridge over the Tay was opened in June 1878. It fell in a storm on 28 December 1879, with a train on it.", "When did the bridge fall?"],
  roles: ["Mary *sold* her car to a neighbour and *left* for Canada.", ""],
  clusters: ["Anna met Peter at the station. She gave him the letter that her mother had written.", ""],
};
const LEADS = {
  ner: "Names in a text: people, places, organisations.",
  pos: "The part of speech of every word.",
  chunk: "The phrases that a sentence is made of.",
  sentiment: "Whether a text praises or blames.",
  entail: "Whether the second text follows from the first.",
  qa: "The words of a passage that answer a question.",
  roles: "Who does what to whom: the roles around each verb, or only around those between *asterisks*.",
  coref: "Which words mean the same person or thing.",
};
const PAIRED = ["A man is playing a guitar.", "Somebody makes music."];

export const defaults = (about) => ({ task: about?.tasks[0]?.name ?? "", text: "", second: "" });

export function mount(root, context) {
  const { tasks } = context.about;
  if (!tasks.length) {
    root.append(card("No task model was given", [h("p", {}, "This view shows what a trained model finds: names, parts of speech, chunks, roles, coreference, sentiment, answers. Train one on labelled data, or take one that is there, and name its folder:"), terminal("elmokit train ner --train train.conll --dev dev.conll -o ner-model\nelmokit explore --task ner-model")]));
    return { update() {}, code: () => ({ python: `from elmokit.tasks import TaskModel\n\nmodel = TaskModel.from_pretrained("ner-model")\nprint(model.predict("Jane lives in Paris."))`, command: `elmokit apply ner-model "Jane lives in Paris."` }) };
  }
  let asked = null;
  const pick = choice(tasks.map((one) => [one.name, one.name === one.task ? one.name : `${one.name} (${one.task})`]), "", (task) => context.set({ task, text: "", second: "" }));
  const boxes = [h("textarea", { rows: 3, dir: "auto", spellcheck: "false", maxlength: 20000, oninput: () => typed() }), h("textarea", { rows: 2, dir: "auto", spellcheck: "false", maxlength: 20000, oninput: () => typed() })];
  const typed = calm(() => context.set({ text: boxes[0].value, second: boxes[1].value }), 600);
  const other = labelled("Second text", boxes[1]);
  const out = h("div");
  const beside = h("div");
  const lead = h("p", { class: "lead" });
  root.append(lead, h("div", { class: "row" }, labelled("Model", pick)), h("div", { class: "two" }, labelled("Text", boxes[0]), other), h("div", { class: "wide row" }, out, beside));

  const taskOf = (state) => tasks.find((one) => one.name === state.task) ?? tasks[0];
  const textsOf = (state) => {
    const task = taskOf(state);
    const usual = task.pairs && task.form === "classes" ? PAIRED : (TEXTS[task.form] ?? TEXTS.spans);
    return [state.text || usual[0], task.pairs ? state.second || usual[1] : ""];
  };

  /** Text with marked stretches {start, end, label, series}; those that overlap an earlier one are left out. */
  function marked(text, marks) {
    const [parts, part] = [[], parted(text)];
    let at = 0;
    for (const one of [...marks].sort((a, b) => a.start - b.start || b.end - a.end)) {
      if (one.start < at) continue;
      parts.push(part(at, one.start), h("mark", { class: `k${one.series % 8}` }, part(one.start, one.end), h("sub", {}, one.label)));
      at = one.end;
    }
    return h("p", { class: "answer", dir: "auto" }, [...parts, part(at)]);
  }

  const drawn = {
    spans({ text, records }) {
      const found = records.flatMap((one) => one.spans?.map((s) => ({ ...s, label: s.type })) ?? one.words.map((w) => ({ ...w, label: w.tag })));
      const kinds = [...new Set(found.map((one) => one.label))].sort();
      const rows = () => [["text", "label", "start", "end"], ...found.map((one) => [one.text, one.label, one.start, one.end])];
      return card("What it finds", [marked(text, found.map((one) => ({ ...one, series: kinds.indexOf(one.label) }))), found.length ? null : h("p", { class: "note" }, "Nothing was found.")], saves("spans", { csv: rows }));
    },
    classes({ records }) {
      return records.map((record) => {
        const rows = Object.entries(record.probabilities).sort((a, b) => b[1] - a[1]).map(([label, value]) => ({ label, value, text: percent(value), mark: label === record.label }));
        const chart = bars(rows, { most: 1, title: "Probabilities of the labels" });
        return card(`${record.label}`, [chart], saves("labels", { svg: () => chart, csv: () => [["label", "probability"], ...rows.map((one) => [one.label, one.value])] }));
      });
    },
    answer({ text, second, records: [record] }) {
      const found = [{ start: record.start, end: record.end, label: percent(record.probability), series: 1 }];
      return card(second, [marked(text, found), h("p", { class: "note" }, `Answer: ${record.answer}`)], saves("answer", { csv: () => [["question", "answer", "start", "end", "probability"], [second, record.answer, record.start, record.end, record.probability]] }));
    },
    roles({ text, records }) {
      if (!records.length) return card("No predicate", h("p", {}, "No verb was found. Put asterisks around the words whose roles you want: Mary *sold* her car."));
      const kinds = [...new Set(records.flatMap((one) => one.arguments.map((a) => a.role)))].sort();
      const rows = () => [["predicate", "role", "text", "start", "end"], ...records.flatMap((one) => one.arguments.map((a) => [one.predicate.text, a.role, a.text, a.start, a.end]))];
      return records.map((one, k) => card(`${one.predicate.text}`, marked(text, [{ ...one.predicate, label: "predicate", series: 6 }, ...one.arguments.map((a) => ({ ...a, label: a.role, series: kinds.indexOf(a.role) % 6 }))]), k ? null : saves("roles", { csv: rows })));
    },
    clusters({ text, records: [record] }) {
      const marks = record.clusters.flatMap((cluster, k) => cluster.map((one) => ({ ...one, label: String(k + 1), series: k })));
      const rows = () => [["cluster", "text", "start", "end"], ...marks.map((one) => [one.label, one.text, one.start, one.end])];
      return card("Who is who", [marked(text, marks), h("p", { class: "note" }, marks.length ? "Mentions with the same number are one person or thing." : "No two mentions were taken for the same.")], saves("clusters", { csv: rows }));
    },
    records: ({ records }) => card("Records", h("pre", {}, JSON.stringify(records, null, 1))),
  };

  return {
    async update(state) {
      const task = taskOf(state);
      const texts = textsOf(state);
      pick.value = task.name;
      lead.textContent = LEADS[task.task] ?? `${task.help[0].toUpperCase()}${task.help.slice(1)}.`;
      other.hidden = !task.pairs;
      other.firstChild.textContent = task.form === "answer" ? "Question" : "Second text";
      boxes[1].setAttribute("aria-label", other.firstChild.textContent);
      boxes.forEach((box, k) => document.activeElement !== box && (box.value = texts[k]));
      const key = JSON.stringify([task.name, texts]);
      if (asked === key) return;
      asked = key;
      beside.replaceChildren(...mixCards([task]));
      try {
        const found = await context.ask("answer", "answer", { task: task.name, text: texts[0], second: texts[1] });
        if (!found || asked !== key) return;
        out.replaceChildren(...[drawn[found.form](found)].flat());
      } catch (error) {
        out.replaceChildren(context.wrong(error));
      }
    },
    destroy: () => typed.stop(),
    code(state) {
      const task = taskOf(state);
      const [text, second] = textsOf(state);
      const given = task.pairs ? `(${quoted(text)}, ${quoted(second)})` : quoted(text);
      return { python: `from elmokit.tasks import TaskModel\n\nmodel = TaskModel.from_pretrained(${quoted(task.source)})\nprint(model.predict(${given}))`, command: task.pairs ? `# the command reads pairs from files: elmokit apply ${shell(task.source)} FILE` : `elmokit apply ${shell(task.source)} ${shell(text)}` };
    },
  };
}

/** The mix weights that task models learnt. */
export function mixCards(tasks) {
  const rows = tasks.flatMap((task) => task.mixes.map((mix) => ({ label: task.mixes.length > 1 ? `${task.name} ${mix.place}` : task.name, shares: mix.shares, note: `γ ${mix.gamma.toFixed(2)}`, layers: mix.layers })));
  if (!rows.length) return [];
  const chart = shares(rows, rows[0].layers, { title: "Layer weights that the tasks learnt" });
  return [card("Layer weights that the task learnt", [chart, h("p", { class: "note" }, "How much of each layer the task takes, and the scale gamma of the sum.")], saves("mixes", { svg: () => chart, csv: () => [["model", ...rows[0].layers, "gamma"], ...rows.map((one) => [one.label, ...one.shares, one.note.slice(2)])] }))];
}
