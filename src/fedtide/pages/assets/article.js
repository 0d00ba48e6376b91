"use strict";
// An article's figures: one panel at a time, a row to read across panels, curves to choose. Without scripts all panels are tables.
(() => {
  const { data, make, drawing, css, isDark, onRedraw, fixed } = fedtide;
  const redraws = new Map();  // figure -> what draws its panel

  function enhance(figure) {
    const panels = [...figure.querySelectorAll(".panel")], readout = figure.querySelector(".readout"), curves = data.figures[figure.dataset.name];
    const buttons = panels.map((panel, i) => make("button", { type: "button", onclick: () => show(i) }, panel.dataset.title));
    const hint = curves ? null : make("span", { class: "note" }, "Point at a row, or use the arrow keys, to read it across all panels.");
    figure.querySelector(".choices").append(...(panels.length > 1 ? buttons : []), ...(hint ? [hint] : []));
    const charts = curves ? panels.map((panel, i) => plotted(panel, curves.panels[i], curves.axes)) : [];
    let at = 0;
    function show(i, key = null) {
      at = i;
      panels.forEach((panel, j) => { panel.hidden = j !== i; buttons[j].setAttribute("aria-pressed", String(j === i)); });
      if (charts[i]) { redraws.set(figure, charts[i]); charts[i](); }
      if (key !== null) { const row = rowOf(panels[i], key); if (row) row.focus(); }
    }
    const rowOf = (panel, key) => [...panel.querySelectorAll("tbody tr")].find((row) => row.dataset.key === key);
    // What a row says in all panels: "FedAC. The paper's cell: +0.069 (...); ..."
    function read(row) {
      const told = panels.flatMap((panel) => { const same = rowOf(panel, row.dataset.key); return same ? [`${panel.dataset.title}: ${same.cells[2].textContent.trim()}, ${same.cells[3].textContent}`] : []; });
      readout.replaceChildren(make("b", null, `${row.dataset.key.replace(/\.$/, "")}:`), ` ${told.join("; ")}.`, row.dataset.note ? make("span", { class: "soft" }, ` ${row.dataset.note}`) : "");
      for (const each of figure.querySelectorAll("tr[aria-current]")) each.removeAttribute("aria-current");
      for (const panel of panels) { const same = rowOf(panel, row.dataset.key); if (same) same.setAttribute("aria-current", "true"); }
    }
    if (!curves) {
      for (const panel of panels) [...panel.querySelectorAll("tbody tr")].forEach((row, i, rows) => {
        row.tabIndex = i ? -1 : 0;
        row.addEventListener("mouseenter", () => read(row));
        row.addEventListener("focus", () => { rows.forEach((each) => { each.tabIndex = each === row ? 0 : -1; }); read(row); });
        row.addEventListener("keydown", (event) => {
          const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], side = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (step && rows[i + step]) rows[i + step].focus();
          else if (side && panels[at + side]) show(at + side, row.dataset.key);
          else return;
          event.preventDefault();
        });
      });
    }
    show(0);
  }

  // The curves of a panel: a box per row chooses them, the last column reads them at the cursor.
  function plotted(panel, { x, shown, curves }, [over, what]) {
    const holder = panel.querySelector(".chart"), rows = [...panel.querySelectorAll("tbody tr")], head = panel.querySelector("th.value");
    const colour = (curve) => (isDark() && !window.matchMedia("print").matches ? curve.line.dark : curve.line.light);
    const boxes = rows.map((row, i) => {
      const box = make("input", { type: "checkbox", checked: shown.includes(curves[i].name), onchange: draw }), name = row.cells[0];
      name.replaceChildren(make("label", null, box, make("span", { class: "swatch" }), ...name.childNodes));
      return box;
    });
    let plot = null, index = null;
    for (const [name, value] of Object.entries({ tabindex: 0, role: "img", "aria-label": `${what}, ${panel.dataset.title}: the table has the values, arrow keys read them at other times` })) holder.setAttribute(name, value);
    function value(i) {
      index = i;
      head.textContent = i === null ? "" : `at ${fixed(x[i], 2)}`;
      rows.forEach((row, k) => { row.cells[3].textContent = i === null ? "" : fixed(curves[k].mean[i]); });
    }
    holder.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 8, PageUp: -8 }[event.key];
      if (!step || !plot) return;
      event.preventDefault();
      const next = Math.max(0, Math.min(x.length - 1, (index === null ? -1 : index) + step));
      plot.setCursor({ left: plot.valToPos(x[next], "x"), top: 10 });
      value(next);
    });
    function draw() {
      if (plot) plot.destroy();
      const chosen = curves.filter((_, i) => boxes[i].checked), clear = "rgba(0,0,0,0)";
      rows.forEach((row, i) => {
        row.classList.toggle("off", !boxes[i].checked);
        row.querySelector(".swatch").replaceChildren(drawing("svg", { width: 30, height: 10, "aria-hidden": "true" }, drawing("line", { x1: 0, x2: 30, y1: 5, y2: 5, stroke: colour(curves[i]), "stroke-width": 2.4, "stroke-dasharray": curves[i].line.dash.join(" ") })));
      });
      const grid = { stroke: css("--grid"), width: 1 }, font = `12px ${css("--sans")}`, axis = { stroke: css("--soft"), grid, ticks: { ...grid, size: 4 }, font, labelFont: font, labelSize: 20, labelGap: 2 };
      const width = Math.max(240, holder.clientWidth);
      plot = new uPlot({
        width, height: Math.round(Math.max(230, Math.min(420, width * 0.46))), legend: { show: false },
        scales: { x: { time: false } },
        series: [{}, ...chosen.flatMap((curve) => [{ stroke: colour(curve), width: 2.2, dash: curve.line.dash, points: { show: false } }, ...["low", "high"].map(() => ({ stroke: clear, width: 0, points: { show: false } }))])],
        bands: chosen.map((curve, i) => ({ series: [3 * i + 3, 3 * i + 2], fill: `${colour(curve)}28` })),
        axes: [{ ...axis, label: over, size: 30 }, { ...axis, label: what, size: 48 }],
        cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
        hooks: { setCursor: [(u) => { if (u.cursor.left >= 0 && u.cursor.idx !== null && u.cursor.idx !== undefined) value(u.cursor.idx); }] },
      }, [x, ...chosen.flatMap((curve) => [curve.mean, curve.low, curve.high])], holder);
    }
    return draw;
  }

  document.querySelectorAll("figure.figure").forEach(enhance);
  onRedraw(() => redraws.forEach((draw) => draw()));
})();
