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
      if (name.startsWith("on") && typeof value === "function") node.addEventListener(name.slice(2), value);
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
    return sortable(node);
  }
  // A click on a heading sorts the rows by this column, a second one the other way round; rows without a value stay last.
  function sortable(node) {
    [...node.tHead.rows[0].cells].forEach((head, at) => {
      if (!head.textContent.trim()) return;
      const sort = () => {
        const way = head.getAttribute("aria-sort") === "descending" ? 1 : -1, body = node.tBodies[0];
        const keyed = [...body.rows].map((row) => [sortKey(row.cells[at] ? row.cells[at].textContent : ""), row]);
        const all = keyed.every(([key]) => key === null || typeof key === "number");
        const order = ([a], [b]) => ((a === null) - (b === null)) || (all ? way * (a - b) : -way * String(a).localeCompare(String(b), "en", { numeric: true }));
        body.append(...keyed.sort(order).map(([, row]) => row));
        for (const each of node.tHead.rows[0].cells) each.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", way < 0 ? "descending" : "ascending");
      };
      head.replaceChildren(make("button", { type: "button", class: "sort", onclick: sort }, ...head.childNodes));
    });
    return node;
  }
  const UNITS = { k: 1e3, M: 1e6, G: 1e9, T: 1e12 };
  function sortKey(text) {
    const plain = text.trim().replace(/^≥ /, "").replace(/−/g, "-"), found = plain.replace(/,/g, "").match(/^[+-]?\d+(\.\d+)?(e[+-]?\d+)?( ?[kMGT](?=$|\s|b))?/);
    if (!plain || plain === NONE || /^(not reached|no runs|none)/.test(plain)) return null;
    return found ? Number.parseFloat(found[0]) * (UNITS[(found[3] || "").trim()] || 1) : plain;
  }

  // Numbers as people read them.
  const NONE = "–";
  const missing = (value) => value === null || value === undefined || !Number.isFinite(Number(value));
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

  // A drawing context that writes SVG with the calls of a canvas: so a panel is exported by what draws it.
  class Path {
    constructor() { this.d = ""; }
    moveTo(x, y) { this.d += `M${round(x)} ${round(y)}`; }
    lineTo(x, y) { this.d += `${this.d ? "L" : "M"}${round(x)} ${round(y)}`; }
    closePath() { this.d += "Z"; }
    rect(x, y, w, h) { this.d += `M${round(x)} ${round(y)}h${round(w)}v${round(h)}h${round(-w)}Z`; }
    arc(x, y, r) { this.d += `M${round(x + r)} ${round(y)}A${round(r)} ${round(r)} 0 1 1 ${round(x - r)} ${round(y)}A${round(r)} ${round(r)} 0 1 1 ${round(x + r)} ${round(y)}`; }  // whole circles only
  }
  const round = (value) => Math.round(value * 100) / 100;
  let vector = false;  // while a panel is drawn as SVG
  const path = () => (vector ? new Path() : new Path2D());
  function svgContext(width, height) {
    const node = drawing("svg", { viewBox: `0 0 ${width} ${height}`, width, height }), saved = [], matrix = new DOMMatrix();
    const start = { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, font: "10px sans-serif", textAlign: "start", textBaseline: "alphabetic", lineJoin: "miter", dash: [], matrix, within: null };
    let clips = 0, group = node;  // a group of what is drawn within the same clip
    const put = (tag, attributes, ...children) => {
      if (draw.within !== (group === node ? null : group.getAttribute("clip-path"))) { group = draw.within ? drawing("g", { "clip-path": draw.within }) : node; if (draw.within) node.append(group); }
      group.append(drawing(tag, { ...attributes, opacity: draw.globalAlpha === 1 ? null : round(draw.globalAlpha), transform: draw.matrix.isIdentity ? null : draw.matrix.toString() }, ...children));
    };
    const line = () => ({ stroke: draw.strokeStyle, "stroke-width": draw.lineWidth, "stroke-linejoin": draw.lineJoin, "stroke-dasharray": draw.dash.join(" ") || null });
    const words = (text, x, y, look) => {
      const [, weight, size, family] = draw.font.match(/^(?:(\d+|bold|normal) )?([\d.]+)px (.*)$/), shift = { top: 0.8, middle: 0.35, bottom: -0.2 }[draw.textBaseline] || 0;
      put("text", { x: round(x), y: round(y + shift * size), "font-size": size, "font-weight": weight, "font-family": family, "text-anchor": { center: "middle", right: "end" }[draw.textAlign] || "start", ...look }, text);
    };
    const move = (change) => { draw.matrix = change(draw.matrix); };
    const methods = {
      svg: node, canvas: { width, height },
      save() { saved.push(Object.fromEntries(Object.keys(start).map((name) => [name, draw[name]]))); }, restore() { Object.assign(draw, saved.pop()); },
      beginPath() { draw.path = new Path(); },
      clip() { const id = `clip${++clips}`; node.append(drawing("clipPath", { id }, drawing("path", { d: draw.path.d, transform: draw.matrix.isIdentity ? null : draw.matrix.toString() }))); draw.within = `url(#${id})`; },
      stroke(what = draw.path) { if (what.d) put("path", { d: what.d, fill: "none", ...line() }); }, fill(what = draw.path) { if (what.d) put("path", { d: what.d, fill: draw.fillStyle }); },
      fillRect(x, y, w, h) { put("rect", { x: round(w < 0 ? x + w : x), y: round(h < 0 ? y + h : y), width: round(Math.abs(w)), height: round(Math.abs(h)), fill: draw.fillStyle }); },
      strokeRect(x, y, w, h) { put("rect", { x: round(x), y: round(y), width: round(w), height: round(h), fill: "none", ...line() }); },
      fillText(text, x, y) { words(text, x, y, { fill: draw.fillStyle }); }, strokeText(text, x, y) { words(text, x, y, { fill: "none", ...line() }); },
      measureText(text) { const scratch = document.createElement("canvas").getContext("2d"); scratch.font = draw.font; return scratch.measureText(text); },
      setLineDash(dash) { draw.dash = [...dash]; }, clearRect() {}, drawImage() {},
      translate(x, y) { move((m) => m.translate(x, y)); }, rotate(angle) { move((m) => m.rotate((angle * 180) / Math.PI)); }, scale(x, y) { move((m) => m.scale(x, y)); },
    };
    const draw = { ...start, ...methods, path: new Path() };
    for (const name of ["moveTo", "lineTo", "closePath", "rect", "arc"]) draw[name] = (...values) => draw.path[name](...values);
    return draw;
  }
  function saved(name, content, type) {
    const link = make("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name.replace(/[^\p{L}\p{N}._-]+/gu, "-").slice(0, 120) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  // Buttons that save a picture. paint: draws it on a context; may return a promise. size: gives its width and height.
  function pictures(name, size, paint) {
    const save = async (kind) => {
      const [width, height] = size(), draw = kind === "svg" ? svgContext(width, height) : offscreen(width, height)[1];
      draw.fillStyle = css("--paper"); draw.fillRect(0, 0, width, height);
      vector = kind === "svg";
      try { await paint(draw); } finally { vector = false; }
      if (kind === "svg") saved(`${name()}.svg`, new XMLSerializer().serializeToString(draw.svg), "image/svg+xml");
      else draw.canvas.toBlob((blob) => saved(`${name()}.png`, blob, "image/png"));
    };
    return make("span", { class: "exports screen" }, ...["svg", "png"].map((kind) => make("button", { type: "button", "aria-label": `Save ${name()} as ${kind.toUpperCase()}`, onclick: () => save(kind) }, kind.toUpperCase())));
  }
  // A button that saves rows of cells, or the table that it stands beside, as CSV.
  function tableExport(name, rows) {
    const cell = (text) => { const plain = String(text).trim().replace(/^−/, "-").replace(/^[+-]?\d{1,3}(,\d{3})+(\.\d+)?$/, (each) => each.replaceAll(",", "")); return /[",\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain; };
    const read = (found) => (found instanceof Node ? [...found.rows].map((row) => [...row.cells].map((each) => each.textContent)) : found);
    return make("span", { class: "exports screen" }, make("button", { type: "button", "aria-label": `Save ${name()} as CSV`, onclick: () => saved(`${name()}.csv`, `${read(rows()).map((row) => row.map(cell).join(",")).join("\n")}\n`, "text/csv") }, "CSV"));
  }

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

  // The address holds what is looked at, by name: #t=33&show=test_loss&show=bits
  const address = () => { const words = new URLSearchParams(location.hash.slice(1)); return { ...Object.fromEntries(words), all: (name) => (words.has(name) ? words.getAll(name) : null) }; };
  // Browsers allow some twenty changes a second: of a quick series the last one is written, a moment later.
  let owed = {}, writing = 0, written = 0;
  function setAddress(changes) {
    Object.assign(owed, changes);
    if (!writing) writing = setTimeout(write, Math.max(0, written + 120 - performance.now()));
  }
  function write() {
    const now = new URLSearchParams(location.hash.slice(1));
    for (const [key, value] of Object.entries(owed)) { now.delete(key); for (const one of [value].flat()) if (one !== null) now.append(key, one); }
    owed = {}; writing = 0; written = performance.now();
    if (`#${now}` !== location.hash) history.replaceState(null, "", `#${now}`);
  }
  window.addEventListener("hashchange", () => { clearTimeout(writing); owed = {}; writing = 0; });  // someone else wrote

  return { data, byId, make, drawing, label, table, number, fixed, percent, short, listed, missing, unpack, css, ratio, sized, offscreen, onRedraw, redraw, isDark, path, pictures, tableExport, sortable, svgContext, help, typing, address, setAddress };
})();
