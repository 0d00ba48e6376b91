"use strict";
// What every page shares. A user's words enter the page only as text nodes and attribute values, never as markup.
const fedtide = (() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);

  // make("td", {class: "words", title: "..."}, "text", node, ...)
  function make(tag, attributes, ...children) {
    const node = document.createElement(tag);
    fill(node, attributes);
    node.append(...children.filter((each) => each !== null && each !== undefined));
    return node;
  }
  function fill(node, attributes) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value === true) node.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
    }
  }
  function drawing(tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    fill(node, attributes);
    node.append(...children);
    return node;
  }
  // A user's label: of its own direction, cut short; the whole of it is in the title.
  function label(words, most = 60) {
    const all = String(words), short = all.length > most ? all.slice(0, most - 1) + "…" : all;
    const parts = (short.match(/[^=_/]*[=_/]|[^=_/]+$/g) || [short]).flatMap((each, i) => (i ? [make("wbr"), each] : [each]));  // where a line may end
    return make("bdi", short === all ? null : { title: all.slice(0, 1000) }, ...parts);
  }
  function table(head, rows, caption) {
    const body = make("tbody");
    for (const row of rows) body.append(make("tr", null, ...row.map((each) => (each instanceof Node && each.tagName === "TD" ? each : make("td", null, each)))));
    const node = make("table", null, make("thead", null, make("tr", null, ...head.map((each) => make("th", { scope: "col" }, each)))), body);
    if (caption) node.prepend(make("caption", { class: "hidden" }, caption));
    return node;
  }

  // Numbers as people read them.
  const NONE = "–";
  const missing = (value) => value === null || value === undefined || Number.isNaN(value);
  const number = (value, digits = 4) => (missing(value) ? NONE : Number(Number(value).toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 12 }));
  const fixed = (value, digits = 3) => (missing(value) ? NONE : Number(value).toFixed(digits));
  const percent = (value, digits = 1) => (missing(value) ? NONE : `${(100 * value).toFixed(digits)} %`);
  function short(value) {
    if (missing(value)) return NONE;
    const size = Math.abs(value);
    for (const [at, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (size >= at) return `${Number((value / at).toPrecision(4))} ${unit}`;
    return String(Number(Number(value).toPrecision(4)));
  }
  function listed(items, most = 12) {
    const shown = items.slice(0, most).join(", ");
    return items.length > most ? `${shown} and ${items.length - most} more` : shown;
  }

  // Arrays that were packed by thin.packed.
  function unpack(tree) {
    if (!tree || tree.packed === undefined) return tree;
    const raw = atob(tree.packed), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array }[tree.type](bytes.buffer);
  }

  // Colours live in base.css, so that light, dark and print are decided in one place.
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const DASHES = [[], [7, 3], [2, 2], [9, 3, 2, 3], [12, 4], [4, 4], [9, 2, 2, 2, 2, 2], [1, 3]];
  // The line of policy number i: a colour and a dash, the same everywhere on the page.
  const line = (i) => ({ colour: css(`--c${i % 8}`), dash: DASHES[(i + Math.floor(i / 8)) % 8], variable: `--c${i % 8}` });

  // Canvases are drawn in CSS pixels, whatever the screen has.
  const ratio = () => Math.max(1, Math.min(3, window.devicePixelRatio || 1));
  function sized(canvas, width, height) {
    const scale = ratio(), w = Math.max(1, Math.round(width * scale)), h = Math.max(1, Math.round(height * scale));
    if (canvas.width !== w) canvas.width = w;
    if (canvas.height !== h) canvas.height = h;
    if (canvas.style) { canvas.style.width = `${width}px`; canvas.style.height = `${height}px`; }
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  }
  const offscreen = (width, height) => { const canvas = document.createElement("canvas"); return [canvas, sized(canvas, width, height)]; };

  // What has to be drawn anew when theme, size or paper change.
  const redraws = [];
  const onRedraw = (callback) => { redraws.push(callback); };
  const redraw = () => redraws.forEach((each) => each());
  let pending = 0;
  const later = () => { cancelAnimationFrame(pending); pending = requestAnimationFrame(redraw); };
  window.addEventListener("resize", later);

  // The theme is the reader's choice, which is remembered, else the system's; paper is light.
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = (() => { try { return localStorage.getItem("fedtide-theme"); } catch { return null; } })();
  const isDark = () => root.dataset.theme === "dark";
  const themeButton = make("button", { type: "button", id: "theme", onclick: toggled });
  function dressed() {
    root.dataset.theme = ["light", "dark"].includes(chosen) ? chosen : system.matches ? "dark" : "light";
    themeButton.textContent = isDark() ? "Light" : "Dark";
    themeButton.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
    redraw();
  }
  function toggled() {
    chosen = isDark() ? "light" : "dark";
    try { localStorage.setItem("fedtide-theme", chosen); } catch { /* a page from a file may have no memory */ }
    dressed();
  }
  system.addEventListener("change", dressed);
  // What is drawn for the screen would be squeezed: before printing the page is laid out as wide as paper.
  window.addEventListener("beforeprint", () => { root.dataset.theme = "light"; root.dataset.printing = ""; redraw(); });
  window.addEventListener("afterprint", () => { delete root.dataset.printing; dressed(); });
  dressed();
  byId("tools").append(themeButton);

  // help([["←", "one aggregation back"], ...]): a dialog, opened by ? or its button.
  function help(keys) {
    const dialog = make("dialog", { "aria-label": "Keys" }, make("h2", null, "Keys"));
    dialog.append(make("table", null, make("tbody", null, ...keys.map(([key, meaning]) => make("tr", null, make("td", null, make("kbd", null, key)), make("td", { class: "words" }, meaning))))));
    const close = make("button", { type: "button", onclick: () => dialog.close() }, "Close");
    dialog.append(make("p", null, close));
    document.body.append(dialog);
    const open = () => { if (!dialog.open) dialog.showModal(); };
    byId("tools").append(make("button", { type: "button", id: "help", "aria-label": "Keys of this page", onclick: open }, "?"));
    document.addEventListener("keydown", (event) => { if (event.key === "?" && !typing(event)) { event.preventDefault(); open(); } });
  }
  // Say whether a key belongs to what has the focus and not to the page.
  const typing = (event) => event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range" || Boolean(document.querySelector("dialog[open]"));

  // The address holds what is looked at: #t=33&x=bits
  const address = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  // Browsers allow some twenty changes a second: of a quick series the last one is written, a moment later.
  let owed = {}, writing = 0, written = 0;
  function setAddress(changes) {
    Object.assign(owed, changes);
    if (!writing) writing = setTimeout(write, Math.max(0, written + 120 - performance.now()));
  }
  function write() {
    const now = new URLSearchParams(location.hash.slice(1));
    for (const [key, value] of Object.entries(owed)) if (value === null) now.delete(key); else now.set(key, value);
    owed = {}; writing = 0; written = performance.now();
    if (`#${now}` !== location.hash) history.replaceState(null, "", `#${now}`);
  }
  window.addEventListener("hashchange", () => { clearTimeout(writing); owed = {}; writing = 0; });  // someone else wrote

  return { data, byId, make, drawing, label, table, number, fixed, percent, short, listed, missing, unpack, css, line, ratio, sized, offscreen, onRedraw, redraw, isDark, help, typing, address, setAddress };
})();
