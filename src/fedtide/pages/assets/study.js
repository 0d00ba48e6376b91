"use strict";
(() => {
  const { data, byId, make, drawing, label, table, fixed, short, number, percent, missing, css, isDark, address, setAddress, sortable, pictures, tableExport } = fedtide;
  const { forest, families } = data;
  const GOOD = ["holds", "gains"], BAD = ["contradicted", "loses"], TOLD = ["higher", "lower"], DOWN = ["contradicted", "loses", "lower"];
  const isSame = (verdict) => String(verdict).startsWith("no difference above");
  const kind = (verdict) => (GOOD.includes(verdict) ? "good" : BAD.includes(verdict) ? "bad" : TOLD.includes(verdict) || isSame(verdict) ? "told" : "open");
  const sign = (value, digits = 4) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
  const METRICS = {
    mean_accuracy: "accuracy, averaged over the horizon", final_accuracy: "accuracy in the last tenth",
    mean_train_loss: "training loss, averaged", final_train_loss: "training loss in the last tenth",
    variation: "ups and downs of the accuracy per time", roughness: "scatter of the accuracy around its trend",
  };
  const rows = forest.groups.flatMap((group) => group.rows.map((row) => ({ ...row, of: group })));
  const shapes = { o: "circle", s: "square", "^": "up", D: "diamond", v: "down", P: "plus", X: "cross", p: "circle" };

  // What is looked at; the address holds it.
  const state = { row: 0, group: null, measure: forest.measures[0], scale: "linear", x: null, y: null, show: "interval", diff: "", smooth: false, off: null, settings: null, same: false, target: null, zoom: null };
  // Names, for addresses: what stands where may change, what it is called does not.
  const nameOf = (group) => [group.text, group.setting].filter(Boolean).join(" | ");
  rows.forEach((row) => { row.name = [nameOf(row.of), row.group, row.words].filter(Boolean).join(" | "); });
  const family = () => families[(rows[state.row] || { family: 0 }).family];
  const compared = () => {
    const chosen = state.group === null ? [rows[state.row]] : forest.groups[state.group].rows;
    return new Set(chosen.filter(Boolean).filter((row) => families[row.family] === family()).flatMap((row) => [...row.better, ...row.worse]));
  };
  const axis = () => (family().axes.includes(state.x) ? state.x : family().axes.includes(family().over) ? family().over : family().axes[0]);
  const height = () => (family().heights.includes(state.y) ? state.y : family().heights.includes(family().column) ? family().column : family().heights[0]);

  const first = Math.max(0, rows.findIndex((row) => Object.values(row.by).some((found) => found.mean !== undefined)));
  function read() {
    const now = address(), placed = (list, name, called) => { const found = list.findIndex((each) => called(each) === name); return found < 0 ? null : found; };
    state.group = placed(forest.groups, now.g, nameOf);
    state.row = state.group === null ? placed(rows, now.c, (row) => row.name) ?? first : rows.findIndex((row) => row.of === forest.groups[state.group]);
    state.measure = forest.measures.includes(now.m) ? now.m : forest.measures[0];
    state.scale = now.scale === "root" ? "root" : "linear";
    state.x = now.x || null;
    state.y = now.y || null;
    state.show = ["mean", "interval", "seeds"].includes(now.show) ? now.show : "interval";
    state.smooth = now.smooth === "1";
    state.same = now.same === "1";
    const labels = family().curves.map((curve) => curve.label), positions = (names, list) => names && new Set(names.map((name) => list.indexOf(name)).filter((at) => at >= 0));
    const [kind, name] = [(now.diff || "")[0], (now.diff || "").slice(2)];
    state.diff = kind === "n" && names().includes(name) ? `n${names().indexOf(name)}` : kind === "c" && labels.includes(name) ? `c${labels.indexOf(name)}` : "";
    state.off = positions(now.all("off"), labels);
    state.settings = positions(now.all("in"), family().settings);
    state.target = now.target !== undefined && Number(now.target) > 0 && Number(now.target) <= 1 ? Number(now.target) : null;
    state.zoom = null;
  }
  function write() {
    const named = (set, list) => (set ? [...set].sort((a, b) => a - b).map((at) => list[at]) : null), at = Number(state.diff.slice(1)), labels = family().curves.map((curve) => curve.label);
    setAddress({
      c: state.group === null && state.row !== first ? rows[state.row].name : null, g: state.group === null ? null : nameOf(forest.groups[state.group]),
      m: state.measure === forest.measures[0] ? null : state.measure, scale: state.scale === "root" ? "root" : null, x: state.x, y: state.y,
      show: state.show === "interval" ? null : state.show, smooth: state.smooth ? 1 : null, same: state.same ? 1 : null,
      diff: !state.diff ? null : state.diff[0] === "n" ? `n:${names()[at]}` : `c:${labels[at]}`,
      off: !state.off ? null : state.off.size ? named(state.off, labels) : hiddenAtFirst().size ? "" : null, in: named(state.settings, family().settings), target: state.target,
    });
  }
  // The curves that are not drawn: those that the reader left out; of more than ten all that are not compared, at first.
  const FEW = 10;
  const hidden = () => state.off || hiddenAtFirst();
  function hiddenAtFirst() {
    const seen = inView(), chosen = compared();
    return new Set(seen.length > FEW && seen.some(({ i }) => chosen.has(i)) ? seen.filter(({ i }) => !chosen.has(i)).map(({ i }) => i) : []);
  }

  // ---- the forest ----
  const reach = (group) => forest.reach[state.measure][group.setting || ""];
  const perWorld = () => new Set(forest.groups.map((group) => group.setting || "")).size > 1;
  const place = (value, most) => {
    const share = state.scale === "root" ? Math.sign(value) * Math.sqrt(Math.abs(value) / most) : value / most;
    return 50 + 48 * Math.max(-1, Math.min(1, share));
  };
  const percentage = (value, group) => `${place(value, reach(group).most).toFixed(2)}%`;
  function ticks(group) {
    const { most, ticks } = reach(group);
    if (state.scale === "root") return ticks;
    const step = [1, 2, 5, 10].map((each) => each * 10 ** Math.floor(Math.log10(most / 2))).find((each) => most / each <= 2.6);
    return [0, ...[1, 2].map((each) => Number((each * step).toPrecision(3))).filter((each) => each <= most)];
  }
  // The ticks that have room for their numbers: from the outermost inwards, and zero.
  function roomy(group) {
    const whole = byId("forest").clientWidth, wide = window.innerWidth <= 640 ? whole : 0.36 * whole, kept = [], at = (tick) => place(tick, reach(group).most);
    for (const tick of [...ticks(group)].reverse()) {
      const last = kept.length ? at(kept[kept.length - 1]) : 200, need = 100 * (6.6 * (String(tick).length + 1) + 5) / wide;
      if (tick === 0 || last - at(tick) > need && at(tick) - 50 > 0.75 * need) kept.push(tick);
    }
    return kept;
  }
  function grid(svg, height, group) {
    for (const tick of ticks(group)) {
      for (const value of tick ? [-tick, tick] : [0]) svg.append(drawing("line", { class: value ? "tick" : "zero", x1: percentage(value, group), x2: percentage(value, group), y1: 0, y2: height }));
    }
    return svg;
  }
  function axisOf(group) {
    const numbers = grid(drawing("svg", { "aria-hidden": "true" }), 0, group);
    for (const tick of roomy(group)) for (const value of tick ? [-tick, tick] : [0]) numbers.append(drawing("text", { x: percentage(value, group), y: 15, "text-anchor": "middle" }, value ? `${value < 0 ? "−" : "+"}${Math.abs(value)}` : "0"));
    return make("div", { class: "forest-axis" }, make("span", null, `right of 0: ${forest.positive}`), numbers, make("span", null, ""));
  }
  function picture(found, group) {
    const svg = grid(drawing("svg", { class: kind(found.verdict), "aria-hidden": "true" }), "100%", group), most = reach(group).most;
    if (found.mean === undefined || found.mean === null) return svg;
    if (found.low !== null) {
      svg.append(drawing("line", { class: "whisker", x1: percentage(found.low, group), x2: percentage(found.high, group), y1: "50%", y2: "50%" }));
      for (const [end, out] of [[found.low, found.low < -most], [found.high, found.high > most]]) {
        if (!out) continue;
        const arrow = drawing("svg", { x: percentage(end, group), y: "50%", overflow: "visible" });
        arrow.append(drawing("path", { class: "mark full", d: end < 0 ? "M-6 0l7 -4v8z" : "M6 0l-7 -4v8z" }));
        svg.append(arrow);
      }
    }
    const mark = drawing("svg", { x: percentage(found.mean, group), y: "50%", overflow: "visible" });
    const resolved = kind(found.verdict) !== "open";
    const path = found.low === null ? "M-4 -4l8 8m0 -8l-8 8" : DOWN.includes(found.verdict) ? "M-5.5 0l5.5 -5.5 5.5 5.5 -5.5 5.5z" : resolved && !isSame(found.verdict) ? "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z" : "M-4 -4h8v8h-8z";
    mark.append(drawing("path", { class: resolved ? "mark full" : "mark", d: path }));
    svg.append(mark);
    return svg;
  }
  function interval(found) {
    if (found.mean === undefined || found.mean === null) return found.verdict === "runs missing" ? "no runs yet" : "runs too short to tell";
    if (found.low === null) return `${sign(found.mean)}, one seed: no interval`;
    return `${sign(found.mean)} (95 % interval ${sign(found.low)} to ${sign(found.high)}; ${found.num_seeds} seeds)`;
  }
  const told = (row) => row.by[state.measure] || { verdict: "runs missing" };
  const isThere = (row) => !missing(told(row).mean);
  const buttons = [];
  function drawForest() {
    const where = byId("forest"), list = make("div", { class: "forest" });
    const before = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.row : undefined;
    buttons.length = 0;
    const head = make("div", { class: "forest-head" });
    const measures = select("measure", "measured by", forest.measures.map((each) => [each, METRICS[each] || each]), state.measure, (value) => { state.measure = value; changed(true); });
    const scale = select("scale", "scale", [["linear", "linear"], ["root", "square roots"]], state.scale, (value) => { state.scale = value; changed(true); });
    if (forest.measures.length) list.append(make("div", { class: "forest-tools screen" }, measures, scale, pictures(() => `${data.title}-comparisons`, forestSize, drawForestFile)));
    if (!perWorld() && forest.groups.length) head.append(axisOf(forest.groups[0]));
    list.append(head);
    let position = 0, besides = false, world = null;
    forest.groups.forEach((group, at) => {
      if (!group.rows.some(isThere)) { position += group.rows.length; return; }
      if (group.observed && !besides) {
        besides = true;
        list.append(make("p", { class: "forest-part note" }, "Seen besides: no claim of the paper, so differences without a verdict. Right of 0: the first is higher."));
      }
      const verdict = group.verdicts[state.measure];
      const title = make("button", { type: "button", "data-group": at, onclick: () => open(null, at) }, label(group.text, 200));
      const words = make("span", null, title);
      if (group.setting) words.append(" ", make("span", { class: "of" }, label(group.setting, 120)));
      list.append(make("div", { class: "forest-group", role: "heading", "aria-level": 3 }, words, verdict ? make("span", { class: `verdict ${kind(verdict)}` }, verdict) : null));
      if (perWorld() && world !== (group.setting || "")) { world = group.setting || ""; list.append(axisOf(group)); }
      const items = make("ul");
      for (const row of group.rows) {
        const index = position++;
        if (!isThere(row)) continue;
        const found = told(row), has = found.mean !== undefined && found.mean !== null;
        const text = make("span", { class: "words" }, row.group ? `${row.group}: ` : null, label(row.words, 160));
        const count = make("span", { class: "numbers" }, has ? make("b", null, sign(found.mean)) : null, has ? (found.low === null ? " one seed" : ` ± ${(found.high - found.mean).toFixed(4)}`) : "no runs", found.note ? " *" : null);
        const button = make("button", { type: "button", class: "forest-row", "data-row": index, "aria-label": `${row.words.slice(0, 200)}: ${interval(found)}; ${found.verdict}`, onclick: () => open(index, null) }, text, picture(found, group), count);
        buttons[index] = button;
        items.append(make("li", null, button));
      }
      list.append(items);
    });
    if (rows.some((row) => told(row).note)) list.append(make("p", { class: "note" }, "* some pairs mix instruction paths; the comparison says which."));
    const absent = rows.filter((row) => !isThere(row)).length;
    if (absent) list.append(make("p", { class: "note" }, `${absent} comparison${absent > 1 ? "s have" : " has"} no runs yet and ${absent > 1 ? "are" : "is"} not listed.`));
    const whole = make("details", null, make("summary", null, "As a table"));
    whole.addEventListener("toggle", () => { if (whole.open && whole.children.length < 2) whole.append(asTable()); });
    list.append(whole);
    where.replaceChildren(list);
    current();
    if (before !== undefined && buttons[before]) buttons[before].focus({ preventScroll: true });
  }
  function asTable() {
    const body = rows.filter(isThere).map((row) => {
      const found = told(row);
      return [make("td", { class: "words" }, label(row.of.text, 120)), make("td", { class: "words" }, label(row.words, 160)), METRICS[found.metric] || found.metric || "", interval(found), found.verdict];
    });
    return withFile("comparisons", table(["about", "comparison", "measured by", "difference", "verdict"], body, "All comparisons"));
  }
  // A table that scrolls, with a button that saves it.
  const withFile = (name, node, kind = "scroll") => make("div", null, make("p", { class: "screen" }, tableExport(() => `${data.title}-${name}`, () => node)), make("div", { class: kind }, node));
  const LINE = 19, WORDS = 430, WIDE = 380;  // px of the forest in a file
  const fileLines = () => forest.groups.filter((group) => group.rows.some(isThere)).flatMap((group) => [[group, null], ...group.rows.filter(isThere).map((row) => [group, row])]);
  const forestSize = () => [WORDS + WIDE + 130, LINE * (fileLines().length + 3)];
  function drawForestFile(draw) {
    const ink = css("--ink"), soft = css("--soft"), sans = css("--sans");
    draw.textBaseline = "middle";
    fileLines().forEach(([group, row], i) => {
      const y = LINE * (i + 0.8), X = (value) => WORDS + WIDE * place(value, reach(group).most) / 100;
      draw.textAlign = "left"; draw.fillStyle = ink; draw.font = `${row ? 400 : 600} 12px ${sans}`;
      if (!row) { draw.fillText(`${group.text} ${group.setting || ""}`.slice(0, 110), 0, y); return; }
      const found = told(row), tint = css({ good: "--good", bad: "--bad", told: "--accent", open: "--soft" }[kind(found.verdict)]);
      draw.fillText(row.words.slice(0, 62), 14, y);
      draw.fillStyle = draw.strokeStyle = tint; draw.lineWidth = 2; draw.beginPath();
      if (found.low !== null) { draw.moveTo(X(found.low), y); draw.lineTo(X(found.high), y); draw.stroke(); }
      draw.beginPath(); draw.arc(X(found.mean), y, 4, 0, 7); draw.fill();
      draw.strokeStyle = soft; draw.lineWidth = 0.6; draw.beginPath(); draw.moveTo(X(0), y - LINE / 2); draw.lineTo(X(0), y + LINE / 2); draw.stroke();
      draw.fillStyle = soft; draw.font = `11px ${sans}`; draw.fillText(`${sign(found.mean)}${found.low === null ? "" : ` ± ${(found.high - found.mean).toFixed(4)}`}`, WORDS + WIDE + 6, y);
      if (i === fileLines().length - 1 || fileLines()[i + 1][0].setting !== group.setting) { draw.textAlign = "center"; for (const tick of ticks(group)) for (const value of tick ? [-tick, tick] : [0]) draw.fillText(value ? `${value < 0 ? "−" : "+"}${Math.abs(value)}` : "0", X(value), y + LINE); }
    });
    draw.textAlign = "left"; draw.fillStyle = soft; draw.font = `11px ${sans}`; draw.fillText(`${METRICS[state.measure] || state.measure}; right of 0: ${forest.positive}`, 0, forestSize()[1] - 10);
  }
  function current() {
    const inGroup = state.group === null ? null : forest.groups[state.group];
    buttons.forEach((button, i) => button.setAttribute("aria-current", String(inGroup ? rows[i].of === inGroup : i === state.row)));
  }
  function open(row, group) {
    const before = family();
    state.group = group;
    state.row = row === null ? rows.findIndex((each) => each.of === forest.groups[group]) : row;
    state.off = null;
    state.settings = null;
    state.zoom = null;
    if (family() !== before) { state.diff = ""; state.target = null; }
    current();
    changed(false);
    if (window.matchMedia("(max-width: 1079px)").matches) byId("detail").scrollIntoView({ behavior: "smooth" });
  }

  // ---- controls ----
  function select(id, name, options, value, onchange) {
    const node = make("select", { id, onchange: (event) => onchange(event.target.value) });
    for (const [key, text] of options) {
      const cut = String(text).length > 60 ? `${String(text).slice(0, 59)}…` : text;
      node.append(make("option", { value: key, selected: key === value }, cut));
    }
    return make("label", null, name, node);
  }
  const check = (id, name, value, onchange, title) => make("label", { title }, make("input", { type: "checkbox", id, checked: value, onchange: (event) => onchange(event.target.checked) }), name);

  function visibleSettings() {
    const all = family().settings;
    if (state.settings) { const kept = all.map((_, i) => i).filter((i) => state.settings.has(i)); if (kept.length) return kept; }
    const wanted = new Set([...compared()].map((i) => all.indexOf(family().curves[i].setting)));
    return wanted.size ? all.map((_, i) => i).filter((i) => wanted.has(i)) : all.map((_, i) => i).slice(0, 2);
  }
  const inView = () => {
    const settings = new Set(visibleSettings().map((i) => family().settings[i]));
    return family().curves.map((curve, i) => ({ curve, i })).filter(({ curve }) => settings.has(curve.setting));
  };
  const runsOf = (curve) => Object.keys(curve.even).sort((a, b) => a - b).map((seed) => curve.even[seed]);
  function referenceOf(curve) {
    if (!state.diff) return null;
    const at = Number(state.diff.slice(1));
    if (state.diff[0] === "c") return family().curves[at] || null;
    const name = names()[at];
    return family().curves.find((each) => each.name === name && each.setting === curve.setting) || null;
  }
  const names = () => [...new Set(family().curves.map((curve) => curve.name))];

  function line(curve, i) {
    if (!Object.keys(curve.runs).length) return null;
    if (state.diff) {
      const other = referenceOf(curve);
      return !other || other === curve ? null : curves.differenceBand(curve, other, height(), axis());
    }
    return curves.band(runsOf(curve), height(), axis(), { ratio: height() === "train_loss", smooth: state.smooth });
  }

  // ---- the charts ----
  let charts = [], readers = [], lines = new Map(), cursor = null;
  function drawDetail() {
    const where = byId("detail"), row = rows[state.row], group = state.group === null ? null : forest.groups[state.group];
    const parts = [];
    if (group) {
      parts.push(make("h2", null, label(group.text, 300)), verdictLine(group));
    } else if (row) {
      const found = told(row);
      const claimed = Object.keys(row.of.verdicts).length || row.of.observed;
      parts.push(make("h2", null, label(row.full || row.words, 120), ...(claimed ? [] : [": ", label(row.of.text.replace("Gain", "gain"), 120), row.of.setting ? ", " : "", label(row.of.setting, 120)])));
      const line = make("p", null, make("b", { class: kind(found.verdict) }, found.verdict), `: ${interval(found)}`, found.metric ? ` in ${METRICS[found.metric] || found.metric}` : "", ".");
      if (found.seeds_needed) line.append(` About ${found.seeds_needed.toLocaleString("en")} seeds would resolve a difference of this size.`);
      if (found.note) line.append(` ${found.note}.`);
      parts.push(line);
      if (Object.keys(row.of.verdicts).length) parts.push(make("p", { class: "note" }, "A comparison of: ", label(row.of.text, 300), " ", make("b", { class: kind(row.of.verdicts[state.measure]) }, row.of.verdicts[state.measure])));
    } else parts.push(make("h2", null, label(family().title, 120)));
    const after = [], about = group || (row && row.of);
    if (about && about.quote) after.push(make("blockquote", null, `“${about.quote}” (${about.section})`, about.reading ? make("div", null, `We read it as: ${about.reading}`) : null));
    if (about && about.note) after.push(make("p", { class: "note" }, about.note));
    parts.push(controls(), make("h3", { id: "drawn" }, heading()), make("div", { id: "charts", class: "charts" }), make("p", { id: "readout", class: "hidden", "aria-live": "polite" }), make("div", { id: "lines", class: "scroll lines" }), make("p", { id: "said", class: "note" }), ...after, folded());
    where.replaceChildren(...parts);
    drawCharts();
  }
  // What the charts show, in the words of what was chosen.
  function heading() {
    const what = data.heights[height()], against = state.diff && (state.diff[0] === "n" ? names()[Number(state.diff.slice(1))] : family().curves[Number(state.diff.slice(1))].label);
    const words = `${state.diff ? `Cumulative mean gain in ${what} over ${against}` : what}, over ${data.axes[axis()]}${state.smooth && !state.diff ? ", smoothed over one T_max" : ""}`;
    return `${words[0].toUpperCase()}${words.slice(1)}`;
  }
  function verdictLine(group) {
    const words = Object.entries(group.verdicts).map(([measure, verdict], i) => make("span", null, i ? ", " : "", make("b", { class: kind(verdict) }, verdict), ` by ${measure}`));
    return make("p", null, ...words, words.length ? ". " : "", `${group.rows.length} comparison${group.rows.length > 1 ? "s" : ""}.`);
  }
  function controls() {
    const node = make("div", { class: "controls screen" });
    node.append(select("x", "over", family().axes.map((each) => [each, data.axes[each]]), axis(), (value) => { state.x = value === family().over ? null : value; state.zoom = null; changed(); }));
    if (family().heights.length > 1) node.append(select("y", "show", family().heights.map((each) => [each, data.heights[each]]), height(), (value) => { state.y = value; changed(); }));
    const several = family().settings.length > 1;
    const options = [["", "(none)"], ...names().map((name, i) => [`n${i}`, several ? `${name}, in the same setting` : name])];
    if (several) options.push(...family().curves.map((curve, i) => [`c${i}`, `${curve.name}, ${curve.setting}`]));
    node.append(select("diff", "difference from", options, state.diff, (value) => { state.diff = value; state.zoom = null; changed(); }));
    node.append(select("show", "draw", [["interval", "mean and interval"], ["seeds", "mean and every seed"], ["mean", "mean alone"]], state.show, (value) => { state.show = value; changed(); }));
    node.append(check("smooth", "smooth over one T_max", state.smooth && !state.diff, (value) => { state.smooth = value; changed(); }));
    if (state.diff) { const box = node.querySelector("#smooth"); box.disabled = true; box.parentNode.title = "Differences are of averages up to then, which are smooth."; }
    if (several) {
      const shown = new Set(visibleSettings());
      node.append(make("fieldset", null, make("legend", { class: "hidden" }, "settings"), ...family().settings.map((setting, i) => check(`setting${i}`, label(setting, 40), shown.has(i), (value) => {
        const now = new Set(visibleSettings());
        if (value) now.add(i); else now.delete(i);
        state.settings = now.size ? now : null;
        changed();
      }))));
      node.append(check("same", "same axes", state.same, (value) => { state.same = value; changed(); }, "Draw all charts on the same axes"));
    }
    if (height() === "test_accuracy") node.append(make("label", null, "target accuracy", make("input", { type: "number", id: "target", min: 0.01, max: 1, step: 0.01, value: target(), oninput: (event) => { const value = Number(event.target.value); if (value > 0 && value <= 1) { state.target = value; write(); redrawLines(); } } })));
    return node;
  }
  // Unless somebody chose one: the highest round accuracy that all compared curves reach on average.
  function target() {
    if (state.target !== null) return state.target;
    const ends = [...compared()].map((i) => family().curves[i]).filter((curve) => runsOf(curve).length).map((curve) => curves.band(runsOf(curve), "test_accuracy", "time").mean.at(-1));
    return ends.length ? Math.max(0.01, Math.floor(100 * Math.min(...ends) - 1) / 100) : 0.9;
  }
  const colour = (curve) => (isDark() && !window.matchMedia("print").matches ? curve.line.dark : curve.line.light);

  function drawCharts() {
    charts.forEach((chart) => chart.destroy());
    charts = [];
    const where = byId("charts"), seen = inView();
    lines = new Map(seen.map(({ curve, i }) => [i, line(curve, i)]));
    where.replaceChildren();
    const shown = seen.filter(({ i }) => lines.get(i) && !hidden().has(i));
    const waiting = []; // a chart is as wide as it can be beside the others
    for (const at of visibleSettings()) {
      const setting = family().settings[at], mine = seen.filter(({ curve }) => curve.setting === setting);
      const holder = make("div", { class: "chart", tabindex: 0, role: "img", "data-setting": at });
      where.append(holder);
      if (setting) holder.append(make("h3", null, label(setting, 80)));
      const [view, log] = ranges(state.same ? shown : shown.filter(({ curve }) => curve.setting === setting));
      if (view) waiting.push([holder, mine, view, log]);
      else holder.append(make("p", { class: "note" }, state.diff ? "Nothing to draw: no seed has both." : "Nothing to draw: no curve is chosen, or none has a run."));
      holder.setAttribute("aria-label", spoken(mine, setting));
    }
    charts = waiting.map((each) => chart(...each));
    drawLines();
    said();
  }
  function spoken(mine, setting) {
    const ends = mine.filter(({ i }) => lines.get(i) && !hidden().has(i)).slice(0, 12).map(({ curve, i }) => `${curve.name.slice(0, 60)} ends at ${fixed(lines.get(i).mean.at(-1), 4)}`);
    return `${state.diff ? "Difference in " : ""}${data.heights[height()]} over ${data.axes[axis()]}${setting ? `, ${setting.slice(0, 60)}` : ""}. ${ends.join("; ")}. Arrow keys read values; the table below has them, too.`;
  }
  function ranges(shown) {
    if (!shown.length) return [null, false];
    const all = shown.map(({ i }) => lines.get(i)), log = height() === "train_loss" && !state.diff;
    const x = state.zoom || [Math.min(...all.map((each) => each.x[0])), Math.max(...all.map((each) => each.x.at(-1)))];
    let low = Infinity, high = -Infinity;
    const chosen = compared(), first = state.zoom || !state.diff ? x[0] : x[0] + (x[1] - x[0]) / 7;
    for (const { i } of shown) {
      const each = lines.get(i), wide = bands() && chosen.has(i) && each.n > 1;
      each.x.forEach((at, k) => {
        if (at < first || at > x[1]) return;
        const late = wide && at > x[0] + (x[1] - x[0]) * 0.3;
        low = Math.min(low, late ? each.low[k] : each.mean[k]);
        high = Math.max(high, late ? each.high[k] : each.mean[k]);
      });
    }
    if (low > high) { low = 0; high = 1; }
    if (log) return [{ x, y: [0.7 * low, 1.3 * high] }, true];
    if (state.diff) { low = Math.min(low, 0); high = Math.max(high, 0); }
    const margin = Math.max((high - low) * 0.08, 1e-4);
    let y = [low - margin, high + margin];
    if (!state.diff && height() === "test_accuracy") y = [Math.max(0, y[0]), Math.min(1, y[1])];
    return [{ x, y }, false];
  }
  const steps = (value) => (missing(value) ? "–" : Math.abs(value) >= 1e4 ? short(value) : String(Number(value.toPrecision(6))));
  function chart(holder, mine, view, log) {
    const width = Math.max(240, holder.clientWidth), tall = Math.round(Math.max(230, Math.min(460, width * 0.56, window.innerHeight * 0.44)));
    const ink = css("--soft"), grid = { stroke: css("--grid"), width: 1 }, font = `12px ${css("--sans")}`;
    const base = { stroke: ink, grid, ticks: { ...grid, size: 4 }, font, labelFont: font, labelGap: 2 };
    const made = {
      width, height: tall, legend: { show: false },
      scales: { x: { time: false, range: () => view.x }, y: { range: () => view.y, distr: log ? 3 : 1 } },
      series: [{}, { paths: () => null, points: { show: false } }],
      axes: [
        { ...base, label: data.axes[axis()] + (axis() === "time" ? unit() : ""), labelSize: 20, size: 30, values: (_, all) => all.map(steps), space: 60 },
        { ...base, label: `${state.diff ? "gain in " : ""}${data.heights[height()]}${state.diff ? ", averaged up to then" : ""}`, labelSize: 20, size: state.diff ? 62 : 52, values: (_, all) => all.map((each) => (each === null || log && Math.abs(each / Number(each.toPrecision(1)) - 1) > 1e-9 ? "" : state.diff && each > 0 ? `+${steps(each)}` : steps(each).replace("-", "−"))) },
      ],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, dist: 8 } },
      hooks: {
        draw: [(u) => paint(u, mine)],
        setCursor: [(u) => { if (u.cursor.left >= 0) point(u.posToVal(u.cursor.left, "x"), u); }],
        setSelect: [(u) => { if (u.select.width > 8) { state.zoom = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]; drawCharts(); } }],
      },
    }, values = [view.x, [view.y[0], view.y[1]]], plot = new uPlot(made, values, holder);
    const setting = family().settings[Number(holder.dataset.setting)] || "";
    holder.append(pictures(() => `${data.title}-${height()}${setting ? `-${setting}` : ""}`, () => [width, tall + 24], async (draw) => {
      draw.fillStyle = css("--ink"); draw.font = `600 12px ${css("--sans")}`; draw.fillText(`${heading()}${setting ? `: ${setting}` : ""}`, 4, 15);
      draw.translate(0, 24);
      if (!draw.svg) { draw.drawImage(plot.ctx.canvas, 0, 0, width, tall); return; }
      draw.scale(1 / window.devicePixelRatio, 1 / window.devicePixelRatio);
      const own = HTMLCanvasElement.prototype.getContext;  // the same chart once more, on a context that writes SVG
      let copy;
      HTMLCanvasElement.prototype.getContext = () => draw;
      try { copy = new uPlot({ ...made, hooks: { draw: made.hooks.draw } }, values, make("div")); } finally { HTMLCanvasElement.prototype.getContext = own; }
      await new Promise((done) => setTimeout(done, 20));
      copy.destroy();
    }));
    plot.tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
    plot.over.append(plot.tip);
    plot.over.addEventListener("mouseleave", () => charts.forEach((each) => { each.tip.hidden = true; }));
    plot.mine = mine;
    plot.over.addEventListener("dblclick", () => { state.zoom = null; drawCharts(); });
    if (height() === "test_accuracy" && !state.diff) dragged(holder, plot, view);
    holder.addEventListener("keydown", (event) => walked(event, mine));
    return plot;
  }
  function unit() {
    const windows = new Set(family().curves.flatMap((curve) => runsOf(curve).map((run) => data.runs[run].window)));
    return windows.size === 1 && windows.has(1) ? " (T_max)" : "";
  }
  // Drag the target line up and down; everywhere else a drag chooses a stretch of the axis.
  function dragged(holder, plot, view) {
    const near = (event) => Math.abs(plot.valToPos(target(), "y") - event.offsetY) < 7 && target() >= view.y[0] && target() <= view.y[1];
    plot.over.addEventListener("pointermove", (event) => {
      if (holder.classList.contains("dragging")) {
        const value = Math.max(0.01, Math.min(1, Math.round(1000 * plot.posToVal(event.offsetY, "y")) / 1000));
        state.target = value;
        byId("target").value = value;
        redrawLines();
      } else holder.classList.toggle("near", near(event));
    });
    const start = (event) => { if (near(event)) { holder.classList.add("dragging"); event.stopPropagation(); event.preventDefault(); if (event.pointerId !== undefined) plot.over.setPointerCapture(event.pointerId); } };
    plot.over.addEventListener("pointerdown", start, true);
    plot.over.addEventListener("mousedown", (event) => { if (holder.classList.contains("dragging")) { event.stopImmediatePropagation(); event.preventDefault(); } }, true);
    plot.over.addEventListener("pointerup", () => { if (holder.classList.contains("dragging")) { holder.classList.remove("dragging"); write(); } });
  }
  function redrawLines() { charts.forEach((each) => each.redraw(false)); drawLines(); }

  function paint(u, mine) {
    const { ctx, bbox } = u, scale = fedtide.ratio(), chosen = compared();
    const X = (value) => u.valToPos(value, "x", true), Y = (value) => u.valToPos(value, "y", true);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.lineJoin = "round";
    if (state.diff) rule(ctx, bbox, Y(0), css("--ink"), scale, []);
    const drawn = mine.filter(({ i }) => lines.get(i) && !hidden().has(i)).sort((a, b) => chosen.has(a.i) - chosen.has(b.i));
    const others = drawn.some(({ i }) => chosen.has(i)), crowded = drawn.length > 12;
    for (const { curve, i } of drawn) {
      const each = lines.get(i), strong = !others || chosen.has(i);
      ctx.strokeStyle = ctx.fillStyle = colour(curve);
      if (bands() && strong && each.n > 1) {
        ctx.globalAlpha = 0.16;
        ctx.beginPath();
        each.x.forEach((x, k) => (k ? ctx.lineTo(X(x), Y(bounded(each.high[k]))) : ctx.moveTo(X(x), Y(bounded(each.high[k])))));
        for (let k = each.x.length - 1; k >= 0; k--) ctx.lineTo(X(each.x[k]), Y(bounded(each.low[k])));
        ctx.closePath();
        ctx.fill();
      }
      if (state.show === "seeds" && strong) seeds(ctx, curve, each, X, Y, scale);
      ctx.globalAlpha = strong ? 1 : crowded ? 0.25 : 0.4;
      ctx.lineWidth = (strong ? 2.2 : 1.3) * scale;
      ctx.setLineDash(curve.line.dash.map((part) => part * scale));
      trace(ctx, each.x, each.mean, X, Y);
      ctx.setLineDash([]);
      if (strong || !crowded) marks(ctx, curve, each, X, Y, scale, i, u);
      if (!bands() && strong && each.n > 1 && !state.zoom) whisker(ctx, each, X, Y, scale, i);
    }
    ctx.globalAlpha = 1;
    if (height() === "test_accuracy" && !state.diff) {
      rule(ctx, bbox, Y(target()), css("--focus"), scale, [5, 4]);
      ctx.fillStyle = css("--focus");
      ctx.font = `${11 * scale}px ${css("--sans")}`;
      ctx.textAlign = "left";
      if (target() <= u.scales.y.max && target() >= u.scales.y.min) ctx.fillText(`target ${target()}`, bbox.left + 6 * scale, Y(target()) - 4 * scale);
    }
    ctx.restore();
  }
  // Many bands hide one another: then there is an interval at the right end only.
  const bands = () => state.show === "interval" && [...lines].filter(([i, each]) => each && !hidden().has(i) && compared().has(i)).length <= 4;
  const bounded = (value) => (!state.diff && height() === "test_accuracy" ? Math.max(0, Math.min(1, value)) : value);
  function trace(ctx, xs, ys, X, Y) {
    ctx.beginPath();
    for (let k = 0; k < xs.length; k++) if (k) ctx.lineTo(X(xs[k]), Y(ys[k])); else ctx.moveTo(X(xs[k]), Y(ys[k]));
    ctx.stroke();
  }
  function rule(ctx, bbox, y, stroke, scale, dash) {
    ctx.strokeStyle = stroke; ctx.lineWidth = 1.2 * scale; ctx.setLineDash(dash.map((each) => each * scale));
    ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke(); ctx.setLineDash([]);
  }
  function seeds(ctx, curve, each, X, Y, scale) {
    ctx.globalAlpha = 0.4;
    ctx.lineWidth = 0.8 * scale;
    if (each.lines) each.lines.forEach((values) => trace(ctx, each.x, values, X, Y));
    else for (const run of runsOf(curve)) trace(ctx, curves.column(run, axis()), state.smooth ? curves.smoothed(run, height()) : curves.column(run, height()), X, Y);
  }
  function whisker(ctx, each, X, Y, scale, i) {
    const last = each.x.length - 1, x = X(each.x[last]) - (3 + 6 * (i % 6)) * scale;
    ctx.lineWidth = 2 * scale;
    ctx.beginPath(); ctx.moveTo(x, Y(each.low[last])); ctx.lineTo(x, Y(each.high[last])); ctx.stroke();
  }
  function marks(ctx, curve, each, X, Y, scale, i, u) {
    const width = u.scales.x.max - u.scales.x.min, r = 3.4 * scale;
    for (let k = 0; k < 6; k++) {
      const x = u.scales.x.min + width * (k + 0.35 + 0.08 * (i % 7)) / 6;
      if (x < each.x[0] || x > each.x.at(-1)) continue;
      shape(ctx, shapes[curve.line.marker] || "circle", X(x), Y(curves.at(x, each.x, each.mean)), r);
    }
  }
  function shape(ctx, what, x, y, r) {
    ctx.beginPath();
    if (what === "circle") ctx.arc(x, y, r, 0, 7);
    else if (what === "square") ctx.rect(x - r, y - r, 2 * r, 2 * r);
    else {
      const points = { up: [[0, -1.2], [1.1, 0.9], [-1.1, 0.9]], down: [[0, 1.2], [1.1, -0.9], [-1.1, -0.9]], diamond: [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]], plus: [[-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2], [-0.4, 0.4], [-1.2, 0.4], [-1.2, -0.4], [-0.4, -0.4]], cross: [[-1.2, -0.6], [-0.6, -1.2], [0, -0.6], [0.6, -1.2], [1.2, -0.6], [0.6, 0], [1.2, 0.6], [0.6, 1.2], [0, 0.6], [-0.6, 1.2], [-1.2, 0.6], [-0.6, 0]] }[what];
      points.forEach(([a, b], k) => (k ? ctx.lineTo(x + a * r, y + b * r) : ctx.moveTo(x + a * r, y + b * r)));
      ctx.closePath();
    }
    ctx.fill();
  }

  // ---- reading values ----
  function point(x, from) {
    if (!Number.isFinite(x)) return;  // a chart that was just replaced has no axis any more
    cursor = x;
    for (const reader of readers) reader(x);
    const head = byId("at");
    if (head) head.textContent = `at ${steps(Number(x.toPrecision(4)))}`;
    charts.forEach((each) => tip(each, x));
    for (const each of charts) if (each !== from) { const left = each.valToPos(x, "x"); each.setCursor({ left, top: 10 }, false); }
  }
  // Beside the cursor: the values there, the highest first.
  function tip(plot, x) {
    const found = plot.mine.filter(({ i }) => lines.get(i) && !hidden().has(i)).map(({ curve, i }) => [value(i, x), curve, i]).filter(([now]) => !Number.isNaN(now)).sort((a, b) => b[0] - a[0]);
    const chosen = compared(), most = 10, kept = found.length > most ? found.filter(([, , i]) => chosen.has(i)).slice(0, most) : found;
    plot.tip.hidden = !kept.length;
    if (!kept.length) return;
    plot.tip.replaceChildren(make("div", { class: "soft" }, `${data.axes[axis()]} ${steps(Number(x.toPrecision(4)))}`), ...kept.map(([now, curve]) => make("div", null, swatch(curve), make("b", null, state.diff ? sign(now) : now.toFixed(4)), " ", label(curve.name, 28))));
    const left = plot.valToPos(x, "x"), wide = plot.over.clientWidth, right = left > wide / 2;
    plot.tip.style.left = right ? "" : `${left + 12}px`;
    plot.tip.style.right = right ? `${wide - left + 12}px` : "";
  }
  function walked(event, mine) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    const one = mine.find(({ i }) => lines.get(i) && !hidden().has(i));
    if (event.key === "Escape" && state.zoom) { state.zoom = null; drawCharts(); return; }
    if (step === undefined || !one) return;
    event.preventDefault();
    const xs = lines.get(one.i).x, now = cursor === null ? xs.length - 1 : nearest(xs, cursor);
    const x = xs[Math.max(0, Math.min(xs.length - 1, step === Infinity ? xs.length - 1 : step === -Infinity ? 0 : now + step))];
    point(x, null);
    byId("readout").textContent = `${data.axes[axis()]} ${steps(x)}: ${mine.filter(({ i }) => lines.get(i) && !hidden().has(i)).slice(0, 8).map(({ curve, i }) => `${curve.name.slice(0, 60)} ${fixed(value(i, x), 4)}`).join(", ")}`;
  }
  function nearest(xs, x) {
    let best = 0;
    xs.forEach((each, i) => { if (Math.abs(each - x) < Math.abs(xs[best] - x)) best = i; });
    return best;
  }
  const value = (i, x) => { const each = lines.get(i); return x < each.x[0] || x > each.x.at(-1) ? NaN : curves.at(x, each.x, each.mean); };

  function swatch(curve) {
    const svg = drawing("svg", { width: 34, height: 14, "aria-hidden": "true" });
    svg.append(drawing("line", { x1: 1, x2: 33, y1: 7, y2: 7, stroke: colour(curve), "stroke-width": 2.4, "stroke-dasharray": curve.line.dash.join(" ") || "none" }));
    const path = { circle: "M14 7a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0z", square: "M14 4h6.4v6.4h-6.4z", up: "M17 3l4 7h-8z", down: "M17 11l4 -7h-8z", diamond: "M17 2.5l4.5 4.5 -4.5 4.5 -4.5 -4.5z", plus: "M15.6 3h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6z", cross: "M14 5.4l1.4 -1.4 1.9 1.9 1.9 -1.9 1.4 1.4 -1.9 1.9 1.9 1.9 -1.4 1.4 -1.9 -1.9 -1.9 1.9 -1.4 -1.4 1.9 -1.9z" }[shapes[curve.line.marker] || "circle"];
    svg.append(drawing("path", { d: path, fill: colour(curve) }));
    return svg;
  }
  function mean(values) { return values.reduce((sum, each) => sum + each, 0) / values.length; }
  function toTarget(curve) {
    const found = curves.reaching(runsOf(curve), axis(), target()), count = found.filter(([, reached]) => reached).length;
    if (!found.length) return "no runs";
    if (!count) return "not reached";
    const told = steps(Number(mean(found.map(([amount]) => amount)).toPrecision(5)));
    return count === found.length ? told : `≥ ${told} (${count} of ${found.length})`;
  }
  function drawLines() {
    const several = visibleSettings().length > 1, accuracy = height() === "test_accuracy", chosen = compared();
    readers = [];
    const head = ["curve", ...(several ? ["setting"] : []), "seeds", make("span", { id: "at" }, "at cursor"), "end ± interval", ...(accuracy ? [`reaches ${target()} at`] : [])];
    const body = make("tbody");
    const focus = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.curve : undefined;
    for (const { curve, i } of inView().filter(({ curve }) => Object.keys(curve.runs).length).sort((a, b) => chosen.has(b.i) - chosen.has(a.i))) {
      const each = lines.get(i), off = hidden().has(i), read = make("td", { class: "read" }, "");
      const button = make("button", { type: "button", "data-curve": i, "aria-pressed": String(!off), title: curve.label, onclick: () => { state.off = new Set(hidden()); if (off) state.off.delete(i); else state.off.add(i); write(); drawCharts(); } }, swatch(curve), label(curve.name, 80));
      const end = each ? `${state.diff ? sign(each.mean.at(-1)) : fixed(each.mean.at(-1), 4)}${each.n > 1 ? ` ± ${(each.high.at(-1) - each.mean.at(-1)).toFixed(4)}` : ""}` : state.diff && Object.keys(curve.runs).length ? "(reference)" : "no runs";
      const cells = [make("td", null, button), ...(several ? [make("td", { class: "words" }, label(curve.setting, 40))] : []), make("td", null, String(each ? each.n : runsOf(curve).length)), read, make("td", { class: "end" }, end), ...(accuracy ? [make("td", { class: "target" }, toTarget(curve))] : [])];
      body.append(make("tr", { class: off ? "off" : each ? null : "dim", "data-line": i }, ...cells));
      if (each && !off) readers.push((x) => { const now = value(i, x); read.textContent = Number.isNaN(now) ? "" : state.diff ? sign(now) : now.toFixed(4); });
    }
    const node = make("table", null, make("caption", { class: "hidden" }, "Curves, their values, and when they reach the target"), make("thead", null, make("tr", null, ...head.map((each) => make("th", { scope: "col", class: each === "setting" ? "words" : null }, each)))), body);
    sortable(node);
    const all = make("p", { class: "screen row" }, make("button", { type: "button", class: "small", id: "all", onclick: () => { state.off = new Set(); write(); drawCharts(); } }, "all curves"), " ", make("button", { type: "button", class: "small", id: "only", onclick: () => { state.off = new Set(inView().map(({ i }) => i).filter((i) => !chosen.has(i))); write(); drawCharts(); } }, "only the compared"), tableExport(() => `${data.title}-curves`, () => node));
    byId("lines").replaceChildren(all, node);
    if (focus !== undefined) { const again = byId("lines").querySelector(`[data-curve="${focus}"]`); if (again) again.focus({ preventScroll: true }); }
    if (cursor !== null) point(cursor, null);
  }
  function said() {
    const words = [];
    if (state.diff) words.push("Differences are taken seed by seed, of averages up to then; the last point over time is what a comparison of averages tells.");
    else words.push(`Means over seeds${bands() ? " with 95 % intervals, of the compared curves" : " with 95 % intervals at the right end, of the compared curves"}${state.smooth ? ", every run averaged over one T_max around each point" : ""}.`);
    if (height() === "train_loss" && !state.diff) words.push("Losses: geometric means, on a logarithmic scale.");
    if (height() === "test_accuracy") words.push(`The target is checked in every run, unsmoothed: ${data.axes[axis()]} at the first evaluation that reaches it, averaged over seeds. A seed that never reaches it counts with all that it spent, so the mean is a lower bound (≥).`);
    words.push("Drag over a chart to look closer, double-click to go back.", ...family().notes.map((note) => `${note}.`));
    if (data.thinned) words.push(data.thinned);
    byId("said").textContent = words.join(" ");
  }

  // ---- below: the ledger, the settings, the commands ----
  function folded() {
    const node = make("div"), all = family();
    const fold = (title, content, isOpen) => { const part = make("details", { open: isOpen }, make("summary", null, title), content); node.append(part); };
    const spent = ["bits", "symbols", "air_time", "joules", "samples_trained", "bits_down"].filter((name) => all.ledger.some((row) => row[name] !== null));
    const name = (curve) => make("td", { class: "words" }, label(curve.name, 60), curve.setting ? ", " : null, curve.setting ? label(curve.setting, 60) : null);
    const shares = [["lost_share", "of them lost"], ["silent_share", "silent"], ["retransmitted_share", "retransmitted"], ["idle_share", "symbols unused"]].filter(([name]) => all.ledger.some((row) => row[name]));
    const ledger = table(["curve", "seeds", "uploads", ...shares.map(([, words]) => words), ...spent.map((each) => data.axes[each]), "wasted"], all.ledger.map((row) => [name(all.curves[row.curve]), String(row.seeds), number(row.uploads, 6), ...shares.map(([each]) => percent(row[each], 1)), ...spent.map((each) => short(row[each])), percent(row.wasted, 0)]), "What every curve spent, averaged over seeds");
    ledger.id = "ledger";
    fold("What it cost", withFile("cost", ledger), false);
    const keys = Object.keys(all.differing);
    const settings = table(["curve", ...keys], all.curves.map((curve, i) => [name(curve), ...keys.map((key) => make("td", { class: "words" }, label(all.differing[key][i], 60)))]).filter((_, i) => Object.keys(all.curves[i].runs).length), "Settings that differ");
    settings.id = "settings";
    fold(`Settings that differ (${keys.length})`, keys.length ? withFile("settings", settings, "scroll wide") : make("p", { class: "note" }, "None: there is one variant."), false);
    if (all.commands.length) fold("Commands that reproduce it", make("pre", { id: "commands" }, all.commands.join("\n")), false);
    const absent = Object.entries(all.absent).map(([axis, why]) => make("li", null, `${data.axes[axis]}: ${why}`));
    if (absent.length) fold("Missing axes, and why", make("ul", { class: "note", id: "absent" }, ...absent), false);
    if (all.caption) fold(all.title.slice(0, 120), make("p", { class: "note" }, all.caption), false);
    return node;
  }

  function changed(anew) {
    write();
    if (anew) drawForest();
    const focus = document.activeElement && byId("detail").contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...byId("detail").querySelectorAll("details")].map((each) => each.open);
    drawDetail();
    [...byId("detail").querySelectorAll("details")].forEach((each, i) => { each.open = Boolean(open[i]); });
    if (focus && byId(focus)) byId(focus).focus({ preventScroll: true });
  }
  document.addEventListener("keydown", (event) => {
    const there = buttons.filter(Boolean), at = there.indexOf(document.activeElement), step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (fedtide.typing(event) || step === undefined || at < 0 && event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const next = there[Math.max(0, Math.min(there.length - 1, (at < 0 ? there.indexOf(buttons[state.row]) - step : at) + step))];
    next.focus();
  });
  fedtide.help([["↓ ↑", "next and previous comparison, when one has the focus"], ["j k", "the same from anywhere"], ["Enter", "open its curves"], ["← →", "on a chart: read one evaluation after another"], ["Home End", "on a chart: the first, the last"], ["Esc", "on a chart: back from a closer look"], ["?", "these keys"]]);
  window.addEventListener("hashchange", () => { read(); drawForest(); drawDetail(); });
  fedtide.onRedraw(() => drawCharts());
  read();
  drawForest();
  drawDetail();
  // A study under way: with every run that ends the page is loaded anew, at the same address; the end is noticed.
  if (data.progress) {
    const said = make("p", { class: "soft", id: "live", role: "status" });
    document.querySelector("header").append(said);
    let before = null;
    try { before = JSON.parse(sessionStorage.getItem("fedtide-live")); } catch { /* no memory: no time left */ }
    if (!before || before[0] > data.progress.done) { before = [data.progress.done, Date.now()]; try { sessionStorage.setItem("fedtide-live", JSON.stringify(before)); } catch { /* as above */ } }
    let last = Date.now();
    const tell = ({ done, total }) => {
      const left = done > before[0] ? (total - done) * (last - before[1]) / (done - before[0]) / 60000 : null, idle = Math.floor((Date.now() - last) / 60000);
      said.textContent = done >= total ? "the study is complete" : `following the study: ${done} of ${total} runs${left === null ? "" : `, about ${left < 1.5 ? `${Math.ceil(60 * left)} s` : `${Math.round(left)} min`} left`}${idle >= 2 ? `; no run has ended for ${idle} min: is it still running?` : ""}`;
      return done >= total;
    };
    const ask = async () => {
      try {
        const answer = await fetch("data", { headers: { "X-Seen": data.progress.live }, cache: "no-store" });
        if (answer.status === 200) { location.reload(); return; }
        tell(data.progress);
      } catch { said.textContent = "the server has ended; what is here stays"; return; }
      setTimeout(ask, 1500);
    };
    if (!tell(data.progress)) setTimeout(ask, 1500);
  }
  document.documentElement.dataset.ready = "1";
})();
