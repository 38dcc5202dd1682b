// Elements without HTML strings: text is always text.

/** An element. Properties beginning with "on" are listeners; others are attributes, or left out if null or false. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A labelled control. Its name is the label's text alone, without the options of a select. */
export function labelled(text, control) {
  if (typeof text === "string" && !control.hasAttribute("aria-label")) control.setAttribute("aria-label", text);
  return h("label", {}, text, control);
}

/** A select with the options [value, text]. */
export function choice(options, value, onchange, props = {}) {
  const made = options.map(([v, text]) => h("option", { value: v, selected: v === value }, text));
  return h("select", { ...props, onchange: (event) => onchange(event.target.value) }, made);
}

/** A card with a heading, and buttons that save what it shows: {name, svg, csv, blob}. */
export function card(title, body, saves = null, props = {}) {
  return h("section", { class: "card", "aria-label": title, ...props }, h("div", { class: "head" }, h("h2", {}, title), saves), body);
}

export const RTL = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 1 });
/** A probability: in percent, or "1 in 20K" where it is small. */
export const percent = (p) => (p >= 0.1 ? `${(100 * p).toFixed(0)}%` : p >= 0.001 ? `${(100 * p).toFixed(1)}%` : p > 1e-14 ? `1 in ${compact.format(1 / p)}` : "0");
export const count = (n) => n.toLocaleString("en");

/** Lines to type into a terminal. */
export const terminal = (text) => h("pre", { tabindex: 0, role: "group", "aria-label": "Commands" }, text);

/** Parts of a text by places that count whole characters, as the server does: JavaScript counts an emoji as two. */
export function parted(text) {
  const characters = Array.from(text);
  return (from, to) => characters.slice(from, to).join("");
}

/** The end, or the beginning, of a text: whole words, at most so many characters. */
export function ending(text, most) {
  return text.length > most ? `… ${text.slice(-most).replace(/^\S*\s/, "")}` : text;
}
export function beginning(text, most) {
  return text.length > most ? `${text.slice(0, most).replace(/\s\S*$/, "")} …` : text;
}

/** A function that waits until calls have stopped for a while. */
export function calm(work, milliseconds = 350) {
  let timer = 0;
  const later = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
  later.now = (...given) => {
    clearTimeout(timer);
    work(...given);
  };
  later.stop = () => clearTimeout(timer);
  return later;
}

/** A colour of the theme. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const COLOURS = 8;
