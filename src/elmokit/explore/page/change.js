// Change: words by how differently two texts use them, and both uses in one picture.
import { card, choice, count, h, labelled, terminal } from "./dom.js";
import { saves } from "./save.js";
import { Uses, usual } from "./uses.js";
import { quoted, shell } from "./code.js";

export const title = "Change";
const LIMIT = 2000; // points of each side
const MEASURES = { net: "net: apd less the spread within each text", prt: "prt: distance of the means", apd: "apd: mean distance of pairs", jsd: "jsd: shares of groups" };

const comparable = (about) => (about?.indexes ?? []).filter((one) => one.occurrences);
export const defaults = (about) => ({ ...usual, colour: "side", sort: "apart", first: comparable(about)[0]?.name ?? "", second: comparable(about)[1]?.name ?? "", by: "net", least: "10", word: "", order: "" });

export function mount(root, context) {
  const given = comparable(context.about);
  if (given.length < 2) {
    root.append(card("Two indexes are needed", [h("p", {}, "This view compares two texts: two periods, two newspapers, two authors. Make an index of each with the same model, and give both:"), terminal("elmokit index letters-1900.txt -o old\nelmokit index news-2020.txt -o new\nelmokit explore old new")]));
    return { update() {}, code: () => ({ python: `from elmokit.analysis.drift import measure_drift\nfrom elmokit.index import Index\n\nfor drift in measure_drift(Index.open("old"), Index.open("new")):\n    print(drift.word, drift.net, drift.p_net)`, command: "elmokit drift old new" }) };
  }
  const uses = new Uses(context, { colours: { side: "text", group: "sense group", before: "word before", after: "word after" }, sorts: { apart: "far from the other text" } });
  const names = given.map((one) => [one.name, one.name]);
  const controls = { first: choice(names, "", (first) => context.set({ first, word: "" })), second: choice(names, "", (second) => context.set({ second, word: "" })), by: choice(Object.entries(MEASURES), "", (by) => context.set({ by, order: "" })) };
  const least = h("input", { type: "number", min: 2, max: 100000, onchange: (event) => context.set({ least: event.target.value }) });
  const filter = h("input", { type: "text", placeholder: "filter", "aria-label": "Only words that contain", oninput: () => table(context.state) });
  const ranked = h("div", { class: "scroll short" });
  const message = h("div");
  const about = h("p", { class: "note" });
  let [data, asked] = [null, null];
  const heads = ["word", "first", "second", ...Object.keys(MEASURES), "p"];
  const told = { ...MEASURES, p: "p: how often chance alone gives as large a value of the measure that ranks the list" };
  const headOf = (name) => (name === "first" || name === "second" ? `in ${context.state[name]}` : name);
  const list = card("Words by change", [h("div", { class: "row" }, filter, about), ranked], saves("change", { csv: () => [heads.map((name) => headOf(name)), ...rows(context.state).map((one) => heads.map((key) => one[key]))] }), { hidden: true });
  root.append(
    h("p", { class: "lead" }, "Words that two texts use differently. p says how often chance alone gives as large a change: look at it first. Choose a word to see both uses."),
    h("div", { class: "row" }, labelled("First text", controls.first), labelled("Second text", controls.second), labelled("Rank by", controls.by), labelled("At least so often in each", least)),
    message,
    list,
    uses.element,
  );

  function rows(state) {
    const wanted = filter.value.trim().toLowerCase();
    const some = data.words.filter((one) => one.word.toLowerCase().includes(wanted));
    const key = state.order || state.by;
    return some.sort((a, b) => (key === "word" ? a.word.localeCompare(b.word) : key === "p" ? a.p - b.p : b[key] - a[key]));
  }

  function table(state) {
    const key = state.order || state.by;
    const top = Math.max(...data.words.map((one) => one[state.by]), 1e-9);
    const head = heads.map((name) => h("th", { scope: "col", class: name === "word" ? null : "num", "aria-sort": name === key ? (name === "word" || name === "p" ? "ascending" : "descending") : "none" }, h("button", { type: "button", title: told[name], onclick: () => context.set({ order: name }, { push: false }) }, headOf(name))));
    const body = rows(state).slice(0, 300).map((one) => {
      const cells = heads.slice(1).map((name) => h("td", { class: "num" }, name === "first" || name === "second" ? count(one[name]) : one[name].toFixed(3)));
      const bar = cells[heads.indexOf(state.by) - 1];
      bar.style.background = `linear-gradient(to left, color-mix(in srgb, var(--c0) 22%, transparent) ${(100 * one[state.by]) / top}%, transparent 0)`;
      return h("tr", { class: one.word === state.word ? "chosen" : null }, h("td", {}, h("button", { type: "button", class: "small", dir: "auto", "aria-pressed": String(one.word === state.word), onclick: () => context.set({ word: one.word, pick: undefined, layer: "" }) }, one.word)), cells);
    });
    about.textContent = `${count(data.compared)} words are frequent enough in both${data.compared > data.words.length ? `; the first ${count(data.words.length)} are here` : ""}.`;
    ranked.replaceChildren(h("table", { "aria-label": "Words by change" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
  }

  return {
    async update(state) {
      for (const [name, control] of Object.entries(controls)) control.value = state[name];
      least.value = state.least;
      if (state.first === state.second) return message.replaceChildren(context.wrong(new Error("The two texts are the same; choose another one.")));
      const key = JSON.stringify([state.first, state.second, state.by, state.least]);
      try {
        if (asked !== key) {
          asked = key;
          list.hidden = true;
          const found = await context.ask("change", "change", { first: state.first, second: state.second, by: state.by, min_count: Number(state.least) || 10 });
          if (!found || asked !== key) return;
          data = found;
        }
        if (!data) return;
        message.replaceChildren();
        list.hidden = false;
        const now = context.state;
        table(now);
        ranked.classList.toggle("chosen", Boolean(now.word)); // room for the cloud
        if (!now.word) return (uses.element.hidden = true);
        uses.element.hidden = false;
        await uses.show({ indexes: [now.first, now.second], word: now.word, limit: LIMIT }, now);
      } catch (error) {
        uses.element.hidden = true;
        message.replaceChildren(context.wrong(error));
      }
    },
    theme: () => uses.theme(),
    destroy: () => uses.destroy(),
    code(state) {
      const folders = [state.first, state.second].map((name) => given.find((one) => one.name === name)?.folder ?? name);
      return {
        python: `from elmokit.analysis.drift import DriftConfig, measure_drift\nfrom elmokit.index import Index\n\nfirst, second = Index.open(${quoted(folders[0])}), Index.open(${quoted(folders[1])})\nconfig = DriftConfig(by=${quoted(state.by)}, min_count=${Number(state.least) || 10}, per_word=${Math.max(200, Number(state.least) || 10)})\nfor drift in measure_drift(first, second, ${state.word ? `words=[${quoted(state.word)}], ` : ""}config=config):\n    print(drift.word, drift.first, drift.second, drift.${state.by}, drift.chance(${quoted(state.by)}))`,
        command: `elmokit drift ${folders.map(shell).join(" ")} --by ${state.by} --min-count ${Number(state.least) || 10}`,
      };
    },
  };
}
