// Word: all occurrences of a word in an indexed text.
import { calm, card, choice, count, h, labelled, terminal } from "./dom.js";
import { Uses, usual } from "./uses.js";
import { quoted, shell } from "./code.js";

export const title = "Word";
const firstOf = (about) => (about?.indexes.find((one) => one.occurrences) ?? about?.indexes[0])?.name ?? "";

export const defaults = (about) => ({ ...usual, index: firstOf(about), word: "" });

export function mount(root, context) {
  const { indexes } = context.about;
  if (!indexes.length) {
    root.append(none());
    return { update() {}, code: () => making() };
  }
  const uses = new Uses(context, { colours: { group: "sense group", source: "source", spelling: "spelling", before: "word before", after: "word after" } });
  const list = h("datalist", { id: "known" });
  const box = h("input", { type: "text", list: "known", autocomplete: "off", spellcheck: "false", dir: "auto", maxlength: 200, oninput: () => offered() });
  const offered = calm(() => offer(box.value), 200);
  const pick = choice(indexes.map((one) => [one.name, `${one.name} (${count(one.occurrences)} words)`]), "", (index) => context.set({ index, pick: undefined }));
  const frequent = h("div", { class: "chips" });
  const message = h("div");
  const look = (word) => word.trim() && context.set({ word: word.trim(), pick: undefined, layer: "", groups: "auto" });
  root.append(
    h("p", { class: "lead" }, "Every occurrence of a word is a point; near points are used alike. Select points to read their lines, or a line to find its point."),
    h("form", { class: "row", onsubmit: (event) => (event.preventDefault(), look(box.value)) }, labelled("Index", pick), labelled("Word", box), list, h("button", { class: "main" }, "Show")),
    frequent,
    message,
    uses.element,
  );

  let offeredFor = null;
  async function offer(prefix) {
    const { index } = context.state;
    const found = await context.ask("words", "words", { index, prefix }).catch(() => null);
    if (!found) return;
    list.replaceChildren(...found.words.map((one) => h("option", { value: one.word }, `${one.word} (${one.count})`)));
    if (prefix === "" && offeredFor !== index) {
      offeredFor = index;
      const some = found.telling.slice(0, 12);
      frequent.replaceChildren(...(some.length ? [h("span", { class: "note" }, "Frequent:")] : []), ...some.map((word) => h("button", { type: "button", dir: "auto", onclick: () => look(word) }, word)));
      if (!context.state.word && found.first && context.state.index === index) context.set({ word: found.first }, { push: false });
    }
  }

  return {
    async update(state) {
      pick.value = state.index;
      if (document.activeElement !== box) box.value = state.word;
      const index = indexes.find((one) => one.name === state.index);
      if (!index) return message.replaceChildren(context.wrong(new Error(`No index ${state.index} here.`)));
      if (!index.occurrences) {
        uses.element.hidden = true;
        return message.replaceChildren(card("This index is empty", [h("p", {}, "It holds no words yet. Add text:"), terminal(`elmokit index TEXT.txt -o ${index.folder}`)]));
      }
      if (offeredFor !== state.index) offer("");
      if (!state.word) {
        uses.element.hidden = true;
        return message.replaceChildren();
      }
      try {
        message.replaceChildren();
        await uses.show({ indexes: [state.index], word: state.word }, state);
      } catch (error) {
        uses.element.hidden = true;
        message.replaceChildren(context.wrong(error));
      }
    },
    theme: () => uses.theme(),
    destroy: () => (uses.destroy(), offered.stop()),
    code(state) {
      const index = indexes.find((one) => one.name === state.index);
      const word = state.word || "word";
      const k = state.groups === "auto" ? "None" : state.groups;
      const model = index.fits && context.about.model.given;
      return {
        python: `from elmokit.analysis.word_senses import SensesConfig, group_vectors\nfrom elmokit.index import Index\n\nindex = Index.open(${quoted(index.folder)})\nrows = sorted(row for word in index.spelled(${quoted(word)}) for row in index.rows_of(word))\nfound = group_vectors(index.vectors(rows), [], SensesConfig(clusters=${k}))\nfor group in found.groups:\n    print(len(group.uses), [index.occurrence(rows[k]).text for k in group.examples])`,
        command: `elmokit senses ${index.texts.map((text) => shell(text)).join(" ")} --word ${shell(word)}${state.groups === "auto" ? "" : ` --clusters ${state.groups}`}${model ? ` -m ${shell(model)}` : ""}`,
      };
    },
  };
}

const making = () => ({ python: `from pathlib import Path\n\nfrom elmokit import Elmo\nfrom elmokit.index import Index\n\nIndex.build(Elmo.from_pretrained(), Path("text.txt"), "index")`, command: "elmokit index text.txt -o index\nelmokit explore index" });

const none = () =>
  card("No index yet", [
    h("p", {}, "This view looks at all occurrences of a word in a text of yours. Make an index of the text, then start the explorer with it:"),
    terminal("elmokit index text.txt -o index\nelmokit explore index"),
    h("p", { class: "note" }, "Text to try it with: elmokit sample-text > text.txt. An index with --layers concat:0..2 holds every layer, so that the layer slider needs no model."),
  ]);
