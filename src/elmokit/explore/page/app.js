// The frame: which view, its state in the address, what is asked of the server, and what goes wrong.
import { Gone, call, returned } from "./api.js";
import { h } from "./dom.js";
import * as sentence from "./sentence.js";
import * as blank from "./blank.js";
import * as word from "./word.js";
import * as change from "./change.js";
import * as tasks from "./tasks.js";
import * as model from "./model.js";

const VIEWS = { sentence, blank, word, change, tasks, model };
const [root, status, gone, tabs, foot] = ["view", "status", "gone", "tabs", "foot"].map((id) => document.getElementById(id));
const underWay = new Map();
let current = null;
let about = null;

/** The state that the address holds; what it leaves out is the view's default. */
function read() {
  const given = Object.fromEntries(new URLSearchParams(location.search));
  const view = given.view in VIEWS ? given.view : "sentence";
  return { ...VIEWS[view].defaults(about), ...given, view };
}

function addressOf(state) {
  const usual = VIEWS[state.view].defaults(about);
  const kept = Object.entries(state).filter(([name, value]) => name === "view" || (value !== usual[name] && value !== undefined && value !== null));
  return `?${new URLSearchParams(kept)}`;
}

/** Changes the state. A change that the back button should undo is pushed. */
function set(changes, { push = true } = {}) {
  const state = { ...read(), ...changes };
  const address = addressOf(state);
  if (address !== location.search) history[push ? "pushState" : "replaceState"](null, "", address);
  show();
}

function show() {
  const state = read();
  if (current?.name !== state.view) {
    for (const { stop } of underWay.values()) stop.abort();
    underWay.clear();
    current?.view.destroy?.();
    root.replaceChildren(h("h1", {}, VIEWS[state.view].title));
    current = { name: state.view, view: VIEWS[state.view].mount(root, context) };
    document.title = `${VIEWS[state.view].title} · elmokit explorer`;
    for (const link of tabs.children) link.dataset.view === state.view ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
    tell();
  }
  current.view.update(state);
}

const context = {
  get about() {
    return about;
  },
  get state() {
    return read();
  },
  set,
  /** Asks the server; a newer question of the same kind ends the older one. Returns null if it was ended. */
  async ask(kind, name, body) {
    underWay.get(kind)?.stop.abort();
    const one = { stop: new AbortController(), began: performance.now(), progress: null };
    underWay.set(kind, one);
    const timer = setTimeout(tell, 200);
    root.setAttribute("aria-busy", "true");
    try {
      return await call(name, body, { signal: one.stop.signal, told: (progress) => ((one.progress = progress), performance.now() - one.began > 200 && tell()) });
    } catch (error) {
      if (one.stop.signal.aborted) return null;
      if (error instanceof Gone) {
        lost();
        return null;
      }
      throw error;
    } finally {
      clearTimeout(timer);
      if (underWay.get(kind) === one) underWay.delete(kind);
      if (!underWay.size) root.removeAttribute("aria-busy");
      tell();
    }
  },
  /** Shows an error where the view wants it. */
  wrong: (error) => h("p", { class: "wrong", role: "alert" }, error.message),
};

function tell() {
  const slow = [...underWay.values()].find((one) => performance.now() - one.began > 150);
  if (!slow) return status.replaceChildren();
  const { done, total, what } = slow.progress ?? {};
  const share = total > 1 ? done / total : null;
  const bar = share === null ? h("progress", { "aria-label": "Working" }) : h("progress", { value: share, max: 1, "aria-label": "Working" });
  status.replaceChildren(bar, h("span", {}, `${what || "computing"}${share === null ? "" : ` ${Math.round(100 * share)}%`} …`), h("button", { type: "button", class: "small", onclick: () => [...underWay.values()].forEach((one) => one.stop.abort()) }, "Stop"));
}

let waiting = null;
/** The server does not answer: say so, and go on when it does. */
function lost() {
  waiting ??= (async () => {
    gone.hidden = false;
    gone.textContent = "The server does not answer. Start it again with the same command and port (elmokit explore --port …); this page then goes on by itself.";
    await returned();
    gone.hidden = true;
    waiting = null;
    start();
  })();
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  current?.view.theme?.();
}

function code() {
  const { python, command } = current.view.code(read());
  const block = (title, text) => [
    h("div", { class: "head" }, h("h2", {}, title), h("button", { type: "button", class: "small", onclick: (event) => navigator.clipboard.writeText(text).then(() => (event.target.textContent = "Copied")) }, "Copy")),
    h("pre", { tabindex: 0, role: "group", "aria-label": title }, text),
  ];
  const dialog = h("dialog", { "aria-label": "The code for this view", onclose: () => dialog.remove() }, block("Python", python), block("Command", command), h("form", { method: "dialog" }, h("button", { class: "main" }, "Close")));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
}

async function start() {
  try {
    about = await call("about", {});
  } catch (error) {
    if (error instanceof Gone) lost();
    else root.replaceChildren(context.wrong(error));
    return;
  }
  const { model: it, indexes } = about;
  foot.replaceChildren(h("span", {}, `${it.given ?? "bundled model"}: ${it.layers.length} layers of ${it.width}, ${it.arithmetic}. ${indexes.length ? `Indexes: ${indexes.map((one) => one.name).join(", ")}.` : "No index: see the Word view for how to make one."}`));
  current?.view.destroy?.();
  current = null;
  show();
}

tabs.append(...Object.entries(VIEWS).map(([name, { title }], k) => h("a", { href: `?view=${name}`, "data-view": name, title: `Alt+${k + 1}`, onclick: (event) => !event.ctrlKey && !event.metaKey && (event.preventDefault(), go(name)) }, title)));
const go = (name) => {
  if (read().view === name) return;
  history.pushState(null, "", `?view=${name}`);
  show();
};
document.getElementById("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", next);
  theme(next);
});
document.getElementById("code").addEventListener("click", () => current && code());
addEventListener("popstate", () => about && show());
addEventListener("keydown", (event) => event.altKey && /^[1-6]$/.test(event.key) && (event.preventDefault(), go(Object.keys(VIEWS)[event.key - 1])));
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => localStorage.getItem("theme") ?? theme(dark.matches ? "dark" : "light"));
theme(localStorage.getItem("theme") ?? (dark.matches ? "dark" : "light"));
start();
