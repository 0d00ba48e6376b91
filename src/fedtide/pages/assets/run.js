"use strict";
// Runs on one clock: charts that overlay all of them, and the panels of one or several beside each other. What does not move is
// drawn once, to a canvas that nobody sees; a step copies it and draws what is in view on top.
(() => {
  const F = fedtide, { make, byId } = F;
  const MARGIN = 40, AXIS = 22, SPANS = [12, 24, 48, 96];
  let runs, steps, same, colour, generation = 0;
  const state = { step: 0, span: 0, from: 0, to: 1, order: F.data.runs.some((run) => run.groups) ? "group" : "speed", timer: 0, shown: null, measures: null };
  const whole = { number: -1 };  // what the charts of all runs are drawn for

  // ---- what the page was told, as arrays -------------------------------------------------------------------------------
  function prepare(told, number) {
    const unpacked = (tree) => (tree ? Object.fromEntries(Object.entries(tree).map(([name, each]) => [name, F.unpack(each)])) : null);
    const run = { ...told, number, cells: unpacked(told.cells), jobs: unpacked(told.jobs), picks: unpacked(told.picks), ages: unpacked(told.ages), labels: unpacked(told.labels), interference: unpacked(told.interference) };
    const C = (run.C = run.columns.time.length), G = (run.G = run.row_size.length);
    run.uploads = new Uint32Array((C + 1) * G);
    for (let c = 0; c < C; c++) for (let g = 0; g < G; g++) run.uploads[(c + 1) * G + g] = run.uploads[c * G + g] + run.cells.picked[c * G + g] - run.cells.lost[c * G + g] - run.cells.silent[c * G + g];
    run.mostUploads = Math.max(1, ...run.uploads.subarray(C * G));
    run.mostPicked = run.cells.picked.reduce((a, b) => Math.max(a, b), 1);
    run.symbols = run.columns.air;  // of each aggregation, those of uploads that are not listed too
    run.mostSymbols = Math.max(1e-9, ...run.symbols);
    if (run.labels) {
      run.labels.most = run.labels.rows.reduce((a, b) => Math.max(a, b), 1);
      run.labels.mostPicked = run.labels.picked.reduce((a, b) => Math.max(a, b), 1);
    }
    const time = run.columns.time, gap = C > 1 ? (time[C - 1] - time[0]) / (C - 1) : run.horizon / 4;
    run.edge = [];  // of the cells about each aggregation
    for (let c = 0; c <= C; c++) run.edge.push(c === 0 ? Math.max(0, time[0] - gap / 2) : c === C ? time[C - 1] + gap / 2 : (time[c - 1] + time[c]) / 2);
    return run;
  }

  function arrange(told) {
    runs = told.map(prepare);
    // Beside each other, equal lengths mean equal numbers.
    for (const name of ["mostUploads", "mostSymbols"]) { const most = Math.max(...runs.map((run) => run[name])); runs.forEach((run) => { run[name] = most; }); }
    if (!state.shown) state.shown = runs.slice(0, 2).map((run) => run.name);
    whole.unit = clock().unit;
    const shared = Math.max(...runs.map((run) => (run.labels ? run.labels.mostPicked : 1)));
    runs.forEach((run) => { if (run.labels) run.labels.mostPicked = shared; });
    const times = runs.map((run) => run.columns.time);
    same = times.every((each) => each.length === times[0].length && each.every((value, i) => value === times[0][i]));
    const all = same ? times[0].map((value, i) => [value, i]) : [...new Set(times.flat())].sort((a, b) => a - b).map((value) => [value, -1]);
    steps = all.map(([time, column], i) => ({ time, name: same ? runs[0].columns.index[column] : i + 1, at: runs.map((run) => (same ? column : lastBefore(run.columns.time, time))) }));
    const end = Math.max(...runs.map((run) => run.horizon));
    const gap = steps.length > 1 ? (steps[steps.length - 1].time - steps[0].time) / (steps.length - 1) : end;
    Object.assign(state, { end, gap: Math.max(gap, end * 1e-9), scale: Math.max(...runs.map((run) => run.picks.capacity.reduce((a, b) => Math.max(a, b), run.cells.capacity_max))) });
  }
  function lastBefore(times, time) {
    let low = 0, high = times.length;
    while (low < high) { const middle = (low + high) >> 1; if (times[middle] <= time) low = middle + 1; else high = middle; }
    return low - 1;
  }
  const inDetail = () => runs.filter((run) => state.shown.includes(run.name));
  const tidy = (time) => String(Number(Number(time).toPrecision(6)));
  const clock = () => (runs.every((run) => run.unit === runs[0].unit) ? runs[0] : { unit: "" });
  const withUnit = (time, run) => `${tidy(time)}${run.unit ? ` ${run.unit}` : ""}`;

  // ---- colours ---------------------------------------------------------------------------------------------------------
  function colours() {
    const names = "paper panel ink soft line grid accent mark train wait idle up drop away lost noise".split(" ");
    colour = Object.fromEntries(names.map((name) => [name, F.css(`--${name}`)]));
    const stops = [0, 1, 2, 3, 4].map((i) => parsed(F.css(`--heat${i}`)));
    colour.heat = Array.from({ length: 256 }, (_, i) => {
      const at = (i / 255) * 4, low = Math.min(3, Math.floor(at)), share = at - low;
      return `rgb(${stops[low].map((each, k) => Math.round(each + share * (stops[low + 1][k] - each))).join(",")})`;
    });
    runs.forEach((run) => { run.colour = F.isDark() ? run.line.dark : run.line.light; });
    colour.light = F.isDark();
    colour.sans = F.css("--sans");
  }
  const parsed = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const heat = (run, value) => colour.heat[Math.max(0, Math.min(255, Math.round(((value - 1) / 254) * 255 * (run.cells.capacity_max / state.scale))))];
  // Words on a cell of this value.
  const onHeat = (share) => (share > 0.5 ? colour.paper : colour.ink);

  // ---- geometry --------------------------------------------------------------------------------------------------------
  function measure(run) {
    const width = Math.max(260, Math.floor(byId(`run${run.number}`).clientWidth));
    const c = run.labels ? run.labels.count : 0;
    const wide = width >= 700 && c > 0 && c <= 40;
    run.width = width;
    run.cellWidth = wide ? Math.max(2, Math.min(9, Math.floor(100 / c))) : 0;
    run.right = (wide ? run.cellWidth * c + 14 : 0) + (width >= 700 ? 92 : 62);
    run.rowHeight = Math.max(3, Math.min(18, Math.floor(440 / run.G)));
    run.cellHeight = Math.max(3, Math.min(14, Math.floor(300 / run.G)));
    run.order = ordered(run);
    run.place = new Array(run.G);  // where each row is, in rows from above; above every group is room for its name
    run.heads = [];
    const head = Math.ceil(13 / run.cellHeight), groups = grouped(run);
    let y = 0;
    run.order.forEach((row, at) => {
      if (groups && (at === 0 || groups[row] !== groups[run.order[at - 1]])) { run.heads.push([y, groups[row]]); y += head; }
      run.place[row] = y++;
    });
    run.rows = y;
    run.rowAt = new Map(run.place.map((each, row) => [each, row]));
  }
  function measureWhole() {
    const detail = inDetail();
    whole.width = Math.max(260, Math.floor(byId("curves").clientWidth));
    whole.right = detail.length === 1 && detail[0].width === whole.width ? detail[0].right : whole.width >= 700 ? 92 : 62;  // one run: its panels begin and end below
  }
  // The cell or edge server of every row, if rows are in the order of these.
  const grouped = (run) => (run.groups && (state.order === "group" || !run.fine) ? run.groups.rows : null);
  const groupName = (run, group) => (group < 0 ? `no upload: ${run.groups.name} not known` : `${run.groups.name} ${group}`);
  function ordered(run) {
    const rows = [...run.row_size.keys()];
    if (state.order === "number" || !run.fine) return rows;
    if (state.order === "group" && run.groups) {
      const place = new Array(run.G), group = (row) => (run.groups.rows[row] < 0 ? Infinity : run.groups.rows[row]);
      run.speed.forEach((row, at) => { place[row] = at; });
      return rows.sort((a, b) => (group(a) === group(b) ? 0 : group(a) - group(b)) || place[a] - place[b]);
    }
    if (state.order === "uploads") return rows.sort((a, b) => run.uploads[run.C * run.G + b] - run.uploads[run.C * run.G + a] || a - b);
    return run.speed.slice();
  }
  const inner = (run) => run.width - MARGIN - run.right;
  const x = (run, time) => MARGIN + ((time - state.from) / (state.to - state.from)) * inner(run);
  const timeAt = (run, px) => state.from + ((px - MARGIN) / inner(run)) * (state.to - state.from);

  function moveWindow() {
    const count = state.span || Infinity, wide = Math.min(state.end, count * state.gap), time = steps[state.step].time, pad = state.gap * 0.75;
    const whole = !(wide < state.end);
    if (whole) { state.from = 0; state.to = state.end + pad; return; }
    const fits = Math.abs(state.to - state.from - wide) < 1e-9 * state.end;
    if (!fits || time < state.from + pad || time > state.to - pad) state.from = Math.max(0, Math.min(time - wide * (fits && time < state.from + pad ? 0.8 : 0.35), state.end + pad - wide));
    state.to = state.from + wide;
  }
  const inView = (run) => [Math.max(0, lastBefore(run.columns.time, state.from) - 1), Math.min(run.C, lastBefore(run.columns.time, state.to) + 2)];

  // ---- panels ----------------------------------------------------------------------------------------------------------
  function timeAxis(run, draw, y) {
    const { from, to } = state;
    const rough = ((to - from) / Math.max(2, inner(run) / 90)), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
    draw.font = font(11); draw.textAlign = "center"; draw.textBaseline = "top"; draw.fillStyle = colour.soft; draw.strokeStyle = colour.line; draw.lineWidth = 1;
    draw.beginPath();
    for (let i = Math.ceil(from / step - 1e-9); i * step <= to * (1 + 1e-9); i++) {
      const px = Math.round(x(run, i * step)) + 0.5;
      if (px > MARGIN + inner(run) + 1) break;
      draw.moveTo(px, y); draw.lineTo(px, y + 4);
      draw.textAlign = px > MARGIN + inner(run) - 12 ? "right" : "center";  // what stands beside it begins there
      draw.fillText(tidy(i * step), px, y + 7);
    }
    draw.stroke();
  }
  // What the strip to the right of a panel shows, below it.
  function beside(run, draw, y, words, left = MARGIN + inner(run) + 12) {
    draw.font = font(11); draw.textAlign = "left"; draw.textBaseline = "top"; draw.fillStyle = colour.soft; draw.fillText(words, left, y + 7);
  }
  const uploadsLeft = (run) => MARGIN + inner(run) + 12 + (run.cellWidth ? run.cellWidth * run.labels.count + 12 : 0);
  const font = (size, weight = 400) => `${weight} ${size}px ${colour.sans}`;
  function clipped(run, draw, height, paint) {
    draw.save(); draw.beginPath(); draw.rect(MARGIN, 0, inner(run), height); draw.clip(); paint(); draw.restore();
  }
  function rowNames(run, draw, height) {
    draw.font = font(10.5); draw.textAlign = "right"; draw.textBaseline = "middle"; draw.fillStyle = colour.soft;
    const every = Math.max(1, Math.ceil(11 / height));
    run.order.forEach((row, at) => { if (at % every === 0) draw.fillText(run.fine ? String(row) : String(row + 1), MARGIN - 7, (run.place[row] + 0.5) * height + 0.5); });
    draw.textAlign = "left"; draw.textBaseline = "bottom"; draw.strokeStyle = colour.line; draw.lineWidth = 1;
    const tall = Math.ceil(13 / run.cellHeight) * height;
    for (const [y, group] of run.heads) {
      draw.fillStyle = colour.ink; draw.fillText(groupName(run, group), MARGIN, y * height + tall - 1);
      if (y) { draw.beginPath(); draw.moveTo(0, Math.round(y * height) + 1.5); draw.lineTo(MARGIN + inner(run), Math.round(y * height) + 1.5); draw.stroke(); }
    }
  }
  function cursor(run, draw, height, at) {
    draw.fillStyle = colour.mark;
    draw.fillRect(Math.round(at) - 0.75, 0, 1.5, height);
  }
  const column = (run) => steps[state.step].at[run.number];

  // ---- the charts of all runs: one for each measure that was chosen ------------------------------------------------------
  const NAMES = { test_accuracy: "test accuracy", test_loss: "test loss", train_loss: "training loss", bits: "bits sent", symbols: "symbols granted", joules: "energy (J)" };
  const measureName = (name) => NAMES[name] || name.replace(/^metrics\//, "");
  const measured = () => [...new Set(runs.flatMap((run) => [...Object.keys(run.curve.scores), "bits", "symbols", ...(run.columns.joules ? ["joules"] : [])]))];
  const chosen = () => { const known = (state.measures || []).filter((name) => measured().includes(name)); return known.length ? known : measured().slice(0, 1); };
  const points = (run, name) => (run.curve.scores[name] ? [run.curve.time, run.curve.scores[name]] : [run.columns.time, run.columns[name] || []]);
  function valueNow(run, name) {
    const [times, values] = points(run, name);
    for (let at = lastBefore(times, steps[state.step].time * (1 + 1e-12)); at >= 0; at--) if (!F.missing(values[at])) return [times[at], values[at]];
    return null;
  }
  function extent(name) {
    const all = runs.flatMap((run) => points(run, name)[1]).filter((value) => !F.missing(value));
    if (name === "test_accuracy" || !all.length) return [0, 1];
    const low = Math.min(0, ...all), high = Math.max(...all, low + 1e-9);
    return [low, high + 0.04 * (high - low)];
  }
  const curvePanel = (name) => ({
    title: measureName(name).replace(/^./, (letter) => letter.toUpperCase()), drags: true, axis: true, height: () => (chosen().length > 1 ? 120 : 170),
    words: () => `${measureName(name)} over time; ${runs.map((run) => { const last = points(run, name)[1].findLast((value) => !F.missing(value)); return `${run.title} ends at ${F.short(last)}`; }).join("; ")}`,
    y: (value, height) => { const [low, high] = extent(name); return height - 2 - ((value - low) / (high - low)) * (height - 8); },
    back(_, draw, height) {
      const [low, high] = extent(name), rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
      draw.font = font(10.5); draw.textBaseline = "middle"; draw.textAlign = "right"; draw.lineWidth = 1;
      for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); i++) {
        const at = Math.round(this.y(i * step, height)) + 0.5;
        draw.strokeStyle = i ? colour.grid : colour.line; draw.beginPath(); draw.moveTo(MARGIN, at); draw.lineTo(MARGIN + inner(whole), at); draw.stroke();
        draw.fillStyle = colour.soft; draw.fillText(F.short(i * step).replace(" ", ""), MARGIN - 5, Math.max(6, at));
      }
      const chance = name === "test_accuracy" && runs[0].chance;
      if (chance) {
        draw.strokeStyle = colour.soft; draw.setLineDash([2, 3]); draw.beginPath(); draw.moveTo(MARGIN, this.y(chance, height)); draw.lineTo(MARGIN + inner(whole), this.y(chance, height)); draw.stroke(); draw.setLineDash([]);
        draw.textBaseline = "bottom"; draw.fillText("chance", MARGIN + inner(whole) - 3, this.y(chance, height) - 2);
      }
      clipped(whole, draw, height, () => {
        for (const run of [...runs].reverse()) {
          const [times, values] = points(run, name);
          draw.strokeStyle = run.colour; draw.lineWidth = 2; draw.lineJoin = "round"; draw.setLineDash(run.line.dash); draw.beginPath();
          let pen = false;
          values.forEach((value, i) => { if (F.missing(value)) return; if (pen) draw.lineTo(x(whole, times[i]), this.y(value, height)); else draw.moveTo(x(whole, times[i]), this.y(value, height)); pen = true; });
          draw.stroke(); draw.setLineDash([]);
        }
      });
      timeAxis(whole, draw, height);
      beside(whole, draw, height, whole.unit ? (whole.right > 70 ? `time, ${whole.unit}` : whole.unit) : "time");
    },
    over(_, draw, height) {
      cursor(whole, draw, height, x(whole, steps[state.step].time));
      const left = MARGIN + inner(whole) + 12, room = Math.floor((height - 4) / 15), alone = runs.length === 1;
      runs.forEach((run, i) => {
        const now = valueNow(run, name);
        draw.textAlign = "left"; draw.textBaseline = "alphabetic"; draw.fillStyle = colour.ink;
        if (alone) { draw.font = font(whole.right > 70 ? 22 : 14, 600); draw.fillText(now ? shownValue(name, now[1]) : F.short(null), left, 34); }
        else if (i < room) { draw.fillStyle = run.colour; draw.fillRect(left, 15 * i + 4, 9, 9); draw.fillStyle = colour.ink; draw.font = font(11.5, 600); draw.fillText(now ? shownValue(name, now[1]) : F.short(null), left + 13, 15 * i + 13); }
        if (now) clipped(whole, draw, height, () => { draw.fillStyle = run.colour; draw.beginPath(); draw.arc(x(whole, now[0]), this.y(now[1], height), 4, 0, 7); draw.fill(); });
      });
      if (alone) { draw.font = font(11); draw.fillStyle = colour.soft; draw.fillText("now", left, 52); }
      if (name === chosen()[0]) flags(draw);
    },
  });
  const shownValue = (name, value) => (name === "test_accuracy" ? F.fixed(value) : F.short(value));
  // Moments on the first chart: a triangle above each.
  function flags(draw) {
    clipped(whole, draw, 12, () => {
      for (const run of inDetail()) for (const moment of run.moments) {
        const px = x(whole, moment.time);
        draw.fillStyle = run.colour; draw.beginPath(); draw.moveTo(px - 4.5, 0); draw.lineTo(px + 4.5, 0); draw.lineTo(px, 7); draw.closePath(); draw.fill();
      }
    });
  }
  function lastScore(run, c) { const at = c < 0 ? -1 : lastBefore(run.curve.index, run.columns.index[c]); return at < 0 ? null : run.curve.scores.test_accuracy[at]; }

  const devices = {
    title: "Devices", axis: true, rows: true, height: (run) => run.rows * run.rowHeight + 2,
    words: (run) => `${run.fine ? "One row per device" : "Rows of devices, the fastest first"}: when it trained, waited, was away, and whether it was picked; the table below tells the aggregation in view`,
    legend: (run) => [
      ["bar", "train", run.jobs && run.jobs.done.some((each) => each >= 0) || !run.fine ? "training" : "training or waiting"], run.fine ? ["bar", "wait", "waiting for the server"] : null, awayKnown(run) ? ["bar", "away", "away"] : null,
      ["pick", "up", "uploaded"], run.fine ? ["ring", "drop", "ready, not picked"] : null, lostKnown(run) ? ["cross", "lost", "lost"] : null, run.fine && run.silent ? ["ring", "lost", "picked, silent"] : null,
    ],
    back(run, draw, height) {
      rowNames(run, draw, run.rowHeight);
      clipped(run, draw, height, () => { if (run.fine) { trainings(run, draw); marks(run, draw, ...inView(run)); } else shares(run, draw, run.rowHeight); });
      holdings(run, draw);
      timeAxis(run, draw, height);
      if (run.cellWidth) beside(run, draw, height, run.cellWidth * run.labels.count > 60 ? `labels 0–${run.labels.count - 1}` : "labels");
      beside(run, draw, height, "uploads", uploadsLeft(run));
    },
    over(run, draw, height) {
      cursor(run, draw, height, x(run, steps[state.step].time));
      const c = column(run);
      if (run.fine && c >= 0) clipped(run, draw, height, () => marks(run, draw, c, c + 1, 2.5));  // over the cursor, which would hide them
      const left = uploadsLeft(run), most = run.right - (left - MARGIN - inner(run)) - 30;
      draw.font = font(10); draw.textAlign = "left"; draw.textBaseline = "middle";
      for (let row = 0; row < run.G; row++) {
        const count = run.uploads[(c + 1) * run.G + row], y = run.place[row] * run.rowHeight, wide = (count / run.mostUploads) * most;
        draw.fillStyle = colour.idle; draw.fillRect(left, y + 1, most, run.rowHeight - (run.rowHeight > 4 ? 2 : 1));
        draw.globalAlpha = c >= 0 && run.cells.picked[c * run.G + row] ? 1 : 0.4; draw.fillStyle = colour.up; draw.fillRect(left, y + 1, wide, run.rowHeight - (run.rowHeight > 4 ? 2 : 1)); draw.globalAlpha = 1;
        if (run.rowHeight >= 10) { draw.fillStyle = colour.soft; draw.fillText(String(count), left + most + 4, y + run.rowHeight / 2 + 0.5); }
      }
    },
    tip(run, row, time) {
      const lines = [rowName(run, row)];
      if (run.jobs) {
        const job = jobAt(run, row, time);
        if (job >= 0) lines.push(doing(run, job, time));
      } else lines.push(`${run.row_size[row]} devices`);
      const c = nearest(run, time);
      lines.push(`${run.uploads[(c + 1) * run.G + row]} uploads up to aggregation ${run.columns.index[c]}`);
      return lines;
    },
  };
  const awayKnown = (run) => (run.jobs ? run.jobs.begin.some((each, i) => each > run.jobs.received[i] || run.jobs.back[i] > run.jobs.done[i] && run.jobs.done[i] >= 0) : run.cells.away.some((each) => each > 0));
  const lostKnown = (run) => run.cells.lost.some((each) => each > 0);
  const rowName = (run, row) => (run.fine ? `device ${row}` : `row ${row + 1} of ${run.G}: ${run.row_size[row]} devices`);
  function jobAt(run, device, time) {
    const jobs = run.jobs;
    for (let i = 0; i < jobs.device.length; i++) if (jobs.device[i] === device && jobs.received[i] <= time && (jobs.ready[i] < 0 || jobs.ready[i] >= time)) return i;
    return -1;
  }
  function doing(run, i, time) {
    const { received, begin, done, back, ready } = run.jobs;
    const since = `model of time ${tidy(received[i])}`;
    if (begin[i] > time) return `away, has not taken the ${since}`;
    if (done[i] < 0) return `training or waiting, with the ${since}`;
    if (done[i] > time) return `training the ${since}, done at ${tidy(done[i])}`;
    if (back[i] > time) return `done at ${tidy(done[i])}, away until ${tidy(back[i])}`;
    return `done at ${tidy(done[i])}, waiting for ${ready[i] < 0 ? "the server" : `aggregation at ${tidy(ready[i])}`}`;
  }
  function nearest(run, time) { let c = lastBefore(run.columns.time, time); if (c + 1 < run.C && (c < 0 || run.columns.time[c + 1] - time < time - run.columns.time[c])) c++; return c; }

  const barOf = (h) => Math.max(1, h >= 7 ? h - 2 : h >= 5 ? h - 1 : h);
  function trainings(run, draw) {
    const h = run.rowHeight, bar = barOf(h), base = (h - bar) / 2;
    const { device, received, begin, done, back, ready } = run.jobs, now = run.columns.time[run.C - 1];
    const paths = { train: F.path(), wait: F.path(), away: F.path() };
    const put = (kind, from, to, y) => { if (to > from && to >= state.from && from <= state.to) { const px = x(run, Math.max(from, state.from)); paths[kind].rect(px, y, Math.max(0.5, x(run, Math.min(to, state.to)) - px), bar); } };
    for (let i = 0; i < device.length; i++) {
      const end = ready[i] < 0 ? now : ready[i];
      if (end < state.from || received[i] > state.to) continue;
      const y = run.place[device[i]] * h + base, start = Math.min(begin[i], end);
      put("away", received[i], start, y);
      if (done[i] < 0) { put("train", start, end, y); continue; }
      const over = Math.min(done[i], end), there = Math.min(Math.max(back[i] < 0 ? end : back[i], over), end);
      put("train", start, over, y); put("away", over, there, y); put("wait", there, end, y);
    }
    for (const kind of ["wait", "train", "away"]) { draw.fillStyle = colour[kind]; draw.fill(paths[kind]); }
  }
  // Who was ready at these aggregations: uploaded, lost, silent, or not picked. more: how much larger the marks are, in px.
  function marks(run, draw, first, last, more = 0) {
    const h = run.rowHeight, spread = x(run, state.gap) - x(run, 0), mark = Math.max(1.5, Math.min(4.5, spread * 0.3)) + more, ring = Math.max(1, Math.min(3.1, barOf(h) * 0.36, spread * 0.3)) + more / 4;
    const up = F.path(), rings = F.path(), crosses = F.path(), hollow = F.path();
    for (let c = first; c < last; c++) {
      const px = x(run, run.columns.time[c]);
      for (let row = 0; row < run.G; row++) {
        const at = c * run.G + row;
        if (!run.cells.ready[at] && !run.cells.picked[at]) continue;
        const y = run.place[row] * h, middle = y + h / 2;
        if (run.cells.lost[at]) { const s = Math.max(2, ring + 0.6); crosses.moveTo(px - s, middle - s); crosses.lineTo(px + s, middle + s); crosses.moveTo(px + s, middle - s); crosses.lineTo(px - s, middle + s); }
        else if (run.cells.silent[at]) { const s = Math.max(2, ring + 0.6); hollow.moveTo(px + s, middle); hollow.arc(px, middle, s, 0, 6.3); }
        else if (run.cells.picked[at]) up.rect(px - mark / 2, y + (h > 4 ? 0.5 : 0), mark, h - (h > 4 ? 1 : 0));
        else if (ring >= 1.6) { rings.moveTo(px + ring, middle); rings.arc(px, middle, ring, 0, 6.3); }
        else rings.rect(px - 0.5, middle - 0.5, 1, 1);
      }
    }
    draw.fillStyle = colour.up; draw.fill(up);
    draw.fillStyle = colour.paper; draw.fill(rings); draw.strokeStyle = colour.drop; draw.lineWidth = 1.2; draw.stroke(rings);
    draw.fill(hollow); draw.strokeStyle = colour.lost; draw.lineWidth = 2; draw.stroke(crosses); draw.stroke(hollow);
  }
  function shares(run, draw, h) {
    const [first, last] = inView(run), { training, away, picked, lost, silent } = run.cells;
    for (let c = first; c < last; c++) {
      const from = x(run, c ? run.columns.time[c - 1] : 0), to = x(run, run.columns.time[c]), mark = Math.max(1.5, (to - from) * 0.35);
      for (let row = 0; row < run.G; row++) {
        const at = c * run.G + row, y = run.place[row] * h;
        draw.fillStyle = colour.wait; draw.fillRect(from, y, to - from, h);
        draw.globalAlpha = training[at] / 255; draw.fillStyle = colour.train; draw.fillRect(from, y, to - from, h);
        if (away[at]) { draw.globalAlpha = away[at] / 255; draw.fillStyle = colour.away; draw.fillRect(from, y, to - from, h); }
        if (picked[at]) { draw.globalAlpha = 0.25 + 0.75 * (picked[at] / run.mostPicked); draw.fillStyle = (lost[at] + silent[at]) * 2 > picked[at] ? colour.lost : colour.up; draw.fillRect(to - mark, y, mark, h); }
        draw.globalAlpha = 1;
      }
    }
  }
  // Labels that each row holds, beside it.
  function holdings(run, draw) {
    if (!run.cellWidth) return;
    const { count, rows } = run.labels, left = MARGIN + inner(run) + 12;
    for (let row = 0; row < run.G; row++) {
      let most = 0;
      for (let k = 0; k < count; k++) most = Math.max(most, rows[row * count + k]);
      for (let k = 0; k < count; k++) {
        draw.globalAlpha = 0.06 + 0.84 * (rows[row * count + k] / Math.max(1, most)); draw.fillStyle = colour.soft;
        draw.fillRect(left + k * run.cellWidth, run.place[row] * run.rowHeight, run.cellWidth - (run.cellWidth > 4 ? 1 : 0), run.rowHeight - (run.rowHeight > 4 ? 1 : 0));
      }
      draw.globalAlpha = 1;
    }
  }

  const channel = {
    title: "Channel, bit/symbol", axis: true, rows: true, height: (run) => run.rows * run.cellHeight + 2 + disturbedHeight(run),
    words: (run) => `Heat map of what each uplink carried at each aggregation, up to ${F.number(run.cells.capacity_max, 3)} bit/symbol; picked devices are marked`,
    legend: (run) => [["gradient", "", `to ${F.number(state.scale, 3)}`], run.fine ? ["faded", "", "faded: not ready"] : null, run.fine ? ["dot", "mark", "picked"] : null, run.fine && lostKnown(run) ? ["cross", "lost", "lost"] : null, run.interference ? ["bar", "noise", `below: interference over noise, ${run.interference.low} to ${run.interference.high} dB`] : null],
    back(run, draw, height) {
      const h = run.cellHeight, [first, last] = inView(run), thin = h > 5 ? 0.6 : 0;
      rowNames(run, draw, h);
      disturbed(run, draw, height);
      clipped(run, draw, height, () => {
        const dots = F.path(), crosses = F.path();
        for (let c = first; c < last; c++) {
          const from = x(run, run.edge[c]), to = x(run, run.edge[c + 1]), middle = x(run, run.columns.time[c]), gap = to - from > 6 ? thin : 0;
          const radius = Math.max(0.8, Math.min(2.6, h * 0.27, (to - from) * 0.27));
          for (let row = 0; row < run.G; row++) {
            const at = c * run.G + row, y = run.place[row] * h, value = run.cells.capacity[at];
            if (!value) continue;
            draw.globalAlpha = run.fine && !run.cells.ready[at] ? 0.25 : 1;
            draw.fillStyle = heat(run, value);
            draw.fillRect(from, y, to - from - gap, h - thin);
            if (!run.fine || !run.cells.picked[at]) continue;
            const cy = y + (h - thin) / 2;
            if (run.cells.lost[at]) { const s = radius + 0.8; crosses.moveTo(middle - s, cy - s); crosses.lineTo(middle + s, cy + s); crosses.moveTo(middle + s, cy - s); crosses.lineTo(middle - s, cy + s); }
            else { dots.moveTo(middle + radius, cy); dots.arc(middle, cy, radius, 0, 6.3); }
          }
        }
        draw.globalAlpha = 1;
        draw.strokeStyle = colour.light ? "#000" : "#fff"; draw.lineWidth = 2; draw.stroke(dots);
        draw.fillStyle = colour.light ? "#fff" : "#111"; draw.fill(dots);
        draw.strokeStyle = colour.lost; draw.lineWidth = 2; draw.stroke(crosses);
      });
      timeAxis(run, draw, height);
      beside(run, draw, height, run.right > 120 ? "at this aggregation" : "now");
    },
    over(run, draw, height) {
      const c = column(run), left = MARGIN + inner(run) + 12, most = run.right - 12 - 4, h = run.cellHeight;
      cursor(run, draw, height, x(run, steps[state.step].time));
      if (c < 0) return;
      disturbedNow(run, draw, height, c, left);
      draw.font = font(10); draw.textAlign = "left"; draw.textBaseline = "middle";
      for (let row = 0; row < run.G; row++) {
        const at = c * run.G + row, y = run.place[row] * h, value = run.cells.capacity[at];
        if (!value) continue;
        const share = ((value - 1) / 254) * (run.cells.capacity_max / state.scale);
        draw.fillStyle = run.cells.picked[at] ? colour.up : run.cells.ready[at] && run.fine ? colour.drop : colour.line;
        draw.fillRect(left, y + 0.5, Math.max(1, share * most), Math.max(1, h - 1.5));
      }
    },
    tip(run, row, time) {
      const c = nearest(run, time), at = c * run.G + row, value = run.cells.capacity[at];
      if (row < 0) return [`cell ${-row - 1}`, disturbedWords(run, c, -row - 1), `at aggregation ${run.columns.index[c]}`];
      const what = run.cells.lost[at] ? "picked, and lost" : run.cells.silent[at] ? "picked, and silent" : run.cells.picked[at] ? "uploaded" : run.cells.ready[at] ? "ready, not picked" : "not ready";
      return [rowName(run, row), value ? `${F.fixed(((value - 1) / 254) * run.cells.capacity_max, 2)} bit/symbol at aggregation ${run.columns.index[c]}` : `not known at aggregation ${run.columns.index[c]}`, run.fine ? what : `${run.cells.picked[at]} uploads of ${run.cells.ready[at]} ready`];
    },
  };

  // Interference that uploads met in every cell, below the channels: darker is more.
  const CELL = 11, TOP = 18;  // px of a cell's row, and of what stands above these rows
  const disturbedHeight = (run) => (run.interference ? TOP + run.interference.count * CELL : 0);
  const decibels = (run, value) => run.interference.low + ((value - 1) / 254) * (run.interference.high - run.interference.low);
  function disturbedWords(run, c, cell) {
    const value = run.interference.level[c * run.interference.count + cell];
    if (!value) return "nobody sent there";
    return `interference ${F.fixed(decibels(run, value), 1)} dB over noise`;
  }
  function disturbed(run, draw, height) {
    if (!run.interference) return;
    const { count, level } = run.interference, top = height - count * CELL, [first, last] = inView(run);
    draw.font = font(10.5); draw.textAlign = "left"; draw.textBaseline = "bottom"; draw.fillStyle = colour.ink; draw.fillText("interference in each cell, I/N", MARGIN, top - 2);
    draw.textAlign = "right"; draw.textBaseline = "middle"; draw.fillStyle = colour.soft;
    for (let cell = 0; cell < count; cell++) draw.fillText(String(cell), MARGIN - 7, top + (cell + 0.5) * CELL);
    clipped(run, draw, height, () => {
      for (let c = first; c < last; c++) {
        const from = x(run, run.edge[c]), wide = x(run, run.edge[c + 1]) - from;
        for (let cell = 0; cell < count; cell++) {
          const value = level[c * count + cell], y = top + cell * CELL;
          draw.fillStyle = colour.idle; draw.fillRect(from, y, wide - 0.6, CELL - 1);
          if (value) { draw.globalAlpha = 0.12 + 0.88 * (value / 255); draw.fillStyle = colour.noise; draw.fillRect(from, y, wide - 0.6, CELL - 1); draw.globalAlpha = 1; }
        }
      }
    });
  }
  function disturbedNow(run, draw, height, c, left) {
    if (!run.interference) return;
    const { count, level } = run.interference, top = height - count * CELL;
    draw.font = font(10); draw.textAlign = "left"; draw.textBaseline = "middle"; draw.fillStyle = colour.soft;
    for (let cell = 0; cell < count; cell++) {
      const value = level[c * count + cell];
      if (value) draw.fillText(`${Math.round(decibels(run, value)) || 0} dB`, left, top + (cell + 0.5) * CELL);
    }
  }

  const airtime = {
    title: "Airtime, symbols", axis: true, height: () => 96,
    words: (run) => `How the symbols of each aggregation were shared, one block per upload, at most ${F.short(run.mostSymbols)} symbols`,
    legend: () => [["gradient", "", "each block an upload, shaded by its channel"]],
    back(run, draw, height) {
      const [first, last] = inView(run), { offset, symbols, capacity } = run.picks, h = height - 6;
      draw.font = font(10.5); draw.textAlign = "right"; draw.textBaseline = "middle"; draw.fillStyle = colour.soft;
      draw.fillText(F.short(run.mostSymbols).replace(" ", ""), MARGIN - 5, 8); draw.fillText("0", MARGIN - 7, height - 2);
      draw.fillStyle = colour.line; draw.fillRect(MARGIN, height - 0.5, inner(run), 1);
      clipped(run, draw, height, () => {
        for (let c = first; c < last; c++) {
          const room = x(run, run.edge[c + 1]) - x(run, run.edge[c]), wide = Math.max(1, Math.min(34, room * 0.82)), px = x(run, run.columns.time[c]) - wide / 2;
          let y = height;
          for (let i = offset[c]; i < offset[c + 1]; i++) {
            const tall = (symbols[i] / run.mostSymbols) * h;
            y -= tall;
            draw.fillStyle = colour.heat[Math.max(0, Math.min(255, Math.round((255 * capacity[i]) / state.scale)))];
            draw.fillRect(px, y, wide, tall);
            if (tall > 2.5) { draw.strokeStyle = colour.soft; draw.lineWidth = 0.5; draw.strokeRect(px, y, wide, tall); }
          }
          const rest = height - (run.symbols[c] / run.mostSymbols) * h;
          if (y - rest > 0.5) { draw.fillStyle = colour.idle; draw.fillRect(px, rest, wide, y - rest); draw.strokeStyle = colour.soft; draw.lineWidth = 0.5; draw.strokeRect(px, rest, wide, y - rest); }
        }
      });
      timeAxis(run, draw, height);
    },
    over(run, draw, height) {
      cursor(run, draw, height, x(run, steps[state.step].time));
      const c = column(run), left = MARGIN + inner(run) + 12;
      draw.textAlign = "left"; draw.textBaseline = "alphabetic"; draw.font = font(run.right > 70 ? 17 : 12, 600); draw.fillStyle = colour.ink;
      const told = (value) => (run.right > 70 ? F.short(value) : F.short(Number(value.toPrecision(3))));
      draw.fillText(c < 0 ? "0" : told(run.columns.symbols[c]), left, 34);
      draw.font = font(11); draw.fillStyle = colour.soft; draw.fillText(run.right > 120 ? "symbols so far" : "so far", left, 50);
      if (c >= 0) { draw.font = font(run.right > 70 ? 17 : 12, 600); draw.fillStyle = colour.ink; draw.fillText(`${told(run.columns.bits[c])}${run.right > 70 ? "bit" : ""}`, left, 76); draw.font = font(11); draw.fillStyle = colour.soft; draw.fillText(run.right > 120 ? "sent so far" : "bits sent", left, 91); }
    },
  };

  // The aggregation in view, without a time axis.
  const strip = {
    title: "Airtime of this aggregation", detail: true, wide: true, height: () => 40,
    words: () => "Shares of the symbols of this aggregation; the table has them as numbers",
    over(run, draw, height, width) {
      const c = column(run);
      if (c < 0) return;
      const { offset, symbols, capacity, picked } = run.picks, all = run.symbols[c] || 1;
      let px = 0;
      draw.font = font(11, 600); draw.textAlign = "center"; draw.textBaseline = "middle";
      for (let i = offset[c]; i < offset[c + 1]; i++) {
        const wide = (symbols[i] / all) * width, share = Math.min(1, capacity[i] / state.scale);
        draw.fillStyle = colour.heat[Math.round(255 * share)]; draw.fillRect(px, 0, wide, height);
        draw.strokeStyle = colour.paper; draw.lineWidth = 1.5; draw.strokeRect(px, 0, wide, height);
        const name = String(picked[i]);
        if (wide > 6 + 7.5 * name.length) { draw.fillStyle = onHeat(share); draw.fillText(name, px + wide / 2, height / 2 + 0.5); }
        px += wide;
      }
      draw.strokeStyle = colour.line; draw.lineWidth = 1; draw.strokeRect(0.5, 0.5, width - 1, height - 1);
    },
  };
  const labelled = {
    title: "Labels of the picked set", detail: true, height: () => 120, when: (run) => run.labels,
    words: () => "Samples of each label that the picked devices hold",
    over(run, draw, height, width) {
      const c = column(run), { count, picked, mostPicked } = run.labels, room = Math.min(46, (width - 6) / count), h = height - 34;
      if (c < 0) return;
      let total = 0;
      for (let k = 0; k < count; k++) total += picked[c * count + k];
      draw.textAlign = "center"; draw.font = font(10.5);
      for (let k = 0; k < count; k++) {
        const value = picked[c * count + k], tall = (value / mostPicked) * h;
        draw.fillStyle = colour.up; draw.fillRect(k * room + 2, 16 + h - tall, Math.max(1, room - 4), tall);
        draw.fillStyle = colour.soft;
        if (room >= 14) { draw.textBaseline = "top"; draw.fillText(String(k), (k + 0.5) * room, 16 + h + 5); }
      }
      const even = 16 + h - (total / count / mostPicked) * h;
      draw.strokeStyle = colour.ink; draw.setLineDash([3, 3]); draw.lineWidth = 1; draw.beginPath(); draw.moveTo(0, even); draw.lineTo(count * room, even); draw.stroke(); draw.setLineDash([]);
      draw.strokeStyle = colour.line; draw.beginPath(); draw.moveTo(0, 16.5 + h); draw.lineTo(count * room, 16.5 + h); draw.stroke();
      if (room < 30) return;
      draw.textBaseline = "bottom"; draw.fillStyle = colour.soft; draw.strokeStyle = colour.paper; draw.lineWidth = 4; draw.lineJoin = "round";
      for (let k = 0; k < count; k++) {  // over the dashed line, with a rim of paper
        const value = picked[c * count + k], at = [F.short(value).replace(" ", ""), (k + 0.5) * room, 16 + h - (value / mostPicked) * h - 1];
        draw.save(); draw.beginPath(); draw.rect(k * room, 0, room, at[2]); draw.clip(); draw.strokeText(...at); draw.restore();
        draw.fillText(...at);
      }
    },
    note: (run, c) => (c < 0 ? "" : `Ω = ${F.number(run.columns.label_variance[c], 5)}${run.columns.proved_minimal[c] ? ", proved minimal" : ""}; dashed: even`),
  };
  const old = {
    title: "Ages so far", detail: true, height: (run) => Math.max(40, run.ages.count * 20 + 4),
    words: () => "How often updates of each age were ready, and picked, up to this aggregation",
    over(run, draw, height, width) {
      const c = column(run), { count, ready, picked, more } = run.ages, last = run.C - 1;
      let most = 1;
      for (let a = 0; a < count; a++) most = Math.max(most, ready[last * count + a]);
      draw.textBaseline = "middle"; draw.font = font(11);
      const room = Math.max(40, width - 150);
      for (let a = 0; a < count; a++) {
        const r = c < 0 ? 0 : ready[c * count + a], p = c < 0 ? 0 : picked[c * count + a], y = a * 20 + 3;
        draw.textAlign = "left"; draw.fillStyle = colour.soft; draw.fillText(`age ${a}${more && a === count - 1 ? "+" : ""}`, 0, y + 8);
        draw.fillStyle = colour.drop; draw.globalAlpha = 0.3; draw.fillRect(48, y, Math.max(1, (r / most) * room), 15); draw.globalAlpha = 1;
        draw.fillStyle = colour.up; draw.fillRect(48, y, (p / most) * room, 15);
        draw.fillStyle = colour.ink; draw.fillText(`${p} of ${r}`, 54 + (r / most) * room, y + 8);
      }
    },
    legend: () => [["bar", "up", "uploaded"], ["bar", "drop", "ready, not picked"]],
  };
  const holds = {
    title: "Labels per device", detail: true, height: (run) => run.rows * Math.max(4, Math.min(10, Math.floor(300 / run.G))) + 16, when: (run) => run.labels && !run.cellWidth,
    words: () => "Which labels each device holds, one row per device in the order of the timeline",
    over(run, draw, height, width) {
      const { count, rows } = run.labels, h = (height - 16) / run.rows, w = Math.min(22, (width - MARGIN) / count);
      rowNames(run, draw, h);
      for (let row = 0; row < run.G; row++) {
        let most = 1;
        for (let k = 0; k < count; k++) most = Math.max(most, rows[row * count + k]);
        for (let k = 0; k < count; k++) { draw.globalAlpha = 0.06 + 0.84 * (rows[row * count + k] / most); draw.fillStyle = colour.soft; draw.fillRect(MARGIN + k * w, run.place[row] * h, w - 1, h - (h > 4 ? 1 : 0)); }
        draw.globalAlpha = 1;
      }
      draw.fillStyle = colour.soft; draw.font = font(10.5); draw.textAlign = "center"; draw.textBaseline = "top";
      if (w >= 12) for (let k = 0; k < count; k++) draw.fillText(String(k), MARGIN + (k + 0.5) * w, height - 13);
    },
  };
  const PANELS = [devices, channel, airtime], DETAILS = [strip, labelled, old, holds];

  // ---- the page --------------------------------------------------------------------------------------------------------
  const views = [];  // of every panel of every run
  function legend(items) {
    const list = make("ul", { class: "legend" });
    for (const item of items.filter(Boolean)) {
      const [kind, name, words] = item, fill = name ? `var(--${name})` : "none", mark = F.drawing("svg", { width: 14, height: 12, viewBox: "0 0 14 12", "aria-hidden": "true" });
      if (kind === "bar") mark.append(F.drawing("rect", { x: 0, y: 2, width: 14, height: 8, fill, stroke: "var(--line)", "stroke-width": 0.5 }));
      if (kind === "pick") mark.append(F.drawing("rect", { x: 5, y: 0, width: 4, height: 12, fill }));
      if (kind === "ring") mark.append(F.drawing("circle", { cx: 7, cy: 6, r: 3.2, fill: "none", stroke: fill, "stroke-width": 1.4 }));
      if (kind === "dot") mark.append(F.drawing("circle", { cx: 7, cy: 6, r: 3, fill, stroke: "var(--paper)" }));
      if (kind === "cross") mark.append(F.drawing("path", { d: "M4 3l6 6M10 3l-6 6", stroke: fill, "stroke-width": 2 }));
      const gradient = kind === "gradient" ? make("canvas", { class: "gradient", "aria-hidden": "true" }) : null;
      list.append(make("li", null, ...(kind === "gradient" ? ["0", gradient] : kind === "faded" ? [] : [mark]), words));
    }
    return list;
  }
  // A panel as a file: its title and legend above what the canvas shows.
  const FILE_TOP = 44;
  const fileSize = ({ panel, run, width }) => [panel.detail ? width : run.width, panel.height(run) + (panel.axis ? AXIS : 0) + FILE_TOP];
  function drawFile(view, draw) {
    const { panel, run } = view, height = panel.height(run);
    draw.textAlign = "left"; draw.textBaseline = "alphabetic"; draw.fillStyle = colour.ink; draw.font = font(13, 600); draw.fillText(run === whole ? panel.title : `${panel.title}: ${run.title}`, 0, 15);
    draw.font = font(11);
    let left = 0;
    const items = run === whole ? runs.map((each) => ["bar", each.colour, each.title]) : (panel.legend ? panel.legend(run) : []).filter(Boolean);
    for (const [kind, name, words] of items) {
      draw.fillStyle = draw.strokeStyle = kind === "gradient" ? colour.heat[200] : colour[name] || name || colour.soft; draw.lineWidth = 1.4; draw.beginPath();
      if (kind === "ring" || kind === "dot") { draw.arc(left + 6, 30, 3.4, 0, 7); if (kind === "dot") draw.fill(); draw.stroke(); } else if (kind === "cross") { draw.moveTo(left + 3, 27); draw.lineTo(left + 9, 33); draw.moveTo(left + 9, 27); draw.lineTo(left + 3, 33); draw.stroke(); } else if (kind !== "faded") draw.fillRect(left + (kind === "pick" ? 4 : 0), 25, kind === "pick" ? 4 : 12, 10);
      draw.fillStyle = colour.soft; draw.fillText(words, left + 17, 34); left += 34 + draw.measureText(words).width;
    }
    draw.save(); draw.translate(0, FILE_TOP);
    if (panel.back) panel.back(run, draw, height);
    panel.over(run, draw, height, panel.detail ? view.width : run.width);
    draw.restore();
  }
  const fileName = (run, panel) => `${run === whole ? runs.map((each) => each.name).slice(0, 3).join("-") : run.name}-${panel.title.split(",")[0].toLowerCase()}`;
  function framed(run, panel) {
    const canvas = make("canvas", { role: "img", "aria-label": panel.words(run) }), note = make("span", { class: "note" }), head = make("div", { class: "head" }, make("h3", null, panel.title), note);
    const figure = make("figure", { class: panel.wide ? "panel wide" : "panel" }, head, canvas);
    if (panel.legend) head.append(legend(panel.legend(run)));
    const view = { run, panel, canvas, figure, note, key: "", back: document.createElement("canvas") };
    head.append(F.pictures(() => fileName(run, panel), () => fileSize(view), (draw) => drawFile(view, draw)));
    if (!panel.detail) pointing(view);
    views.push(view);
    return view;
  }
  function build() {
    views.length = 0;
    const curves = byId("curves");
    curves.replaceChildren(...chosen().map((name) => framed(whole, curvePanel(name)).figure));
    const exports = curves.querySelector(".head .exports");
    if (runs.length > 1) exports.before(make("ul", { class: "legend" }, ...runs.map((run) => make("li", null, swatch(run), F.label(run.title, 60)))));
    exports.append(...F.tableExport(() => "curves", curveRows).childNodes);
    for (const run of runs) {
      const section = byId(`run${run.number}`);
      section.hidden = !inDetail().includes(run);
      section.querySelectorAll(".panel, .detail").forEach((each) => each.remove());
      if (section.hidden) continue;
      section.querySelector("h2").replaceChildren(swatch(run), F.label(run.title, 120));
      const detail = make("div", { class: "detail" });
      for (const panel of [...PANELS, ...DETAILS]) {
        if (panel.when && panel.detail && panel !== holds && !panel.when(run)) continue;
        (panel.detail ? detail : section).append(framed(run, panel).figure);
      }
      run.table = make("div", { class: "scroll" });
      detail.append(make("div", { class: "panel wide" }, make("div", { class: "head" }, make("h3", null, "Uploads of this aggregation"), F.tableExport(() => `${run.name}-uploads-${column(run) < 0 ? 0 : run.columns.index[column(run)]}`, () => run.table.querySelector("table") || [])), run.table));
      section.append(detail);
    }
    byId("runs").className = `runs runs-${Math.min(2, inDetail().length)}`;
    moments();
    results();
  }
  const swatch = (run) => F.drawing("svg", { width: 26, height: 10, class: "swatch", "aria-hidden": "true" }, F.drawing("line", { x1: 1, x2: 25, y1: 5, y2: 5, stroke: run.colour, "stroke-width": 3, "stroke-dasharray": run.line.dash.join(" ") || "none" }));
  function curveRows() {
    const names = measured();
    return [["run", "aggregation", "time", ...names], ...runs.flatMap((run) => run.curve.time.map((time, i) => [run.name, run.curve.index[i], time, ...names.map((name) => { const [times, values] = points(run, name), at = run.curve.scores[name] ? i : lastBefore(times, time); return at < 0 || F.missing(values[at]) ? "" : values[at]; })]))];
  }
  // Moments worth a look, which the page found by itself: a click goes there.
  function moments() {
    const found = inDetail().flatMap((run) => run.moments.map((moment) => [run, moment])).sort(([, a], [, b]) => a.time - b.time), several = inDetail().length > 1;
    byId("moments").hidden = !found.length;
    byId("moments").querySelector("ol").replaceChildren(...found.map(([run, moment]) => make("li", null, make("button", { type: "button", onclick: () => { stop(); go(nearestStep(moment.time)); } }, make("b", null, `time ${withUnit(moment.time, run)}`), several ? swatch(run) : " ", moment.text))));
  }
  // The table of results: which run is what, and which are shown below.
  function results() {
    document.querySelectorAll("#results tr[data-run]").forEach((row) => {
      const run = runs[Number(row.dataset.run)], cell = row.cells[0], on = inDetail().includes(run);
      const toggle = () => { state.shown = on ? state.shown.filter((name) => name !== run.name) : [...state.shown, run.name]; if (!state.shown.length) state.shown = [run.name]; told(); build(); choices(); refresh(true); byId("results").querySelector(`tr[data-run="${run.number}"] button`).focus({ preventScroll: true }); };
      cell.replaceChildren(swatch(run), make("button", { type: "button", class: "plain", "aria-pressed": String(on), title: on ? "shown below; click to hide it" : "click to show it below", onclick: toggle }, F.label(run.title, 80)));
      run.results.forEach(([, value], i) => row.cells[i + 1].replaceChildren(value));
    });
  }
  const told = () => { const usual = runs.slice(0, 2).map((run) => run.name).join() === state.shown.join(); F.setAddress({ run: usual ? null : state.shown, show: state.measures, rows: order.value === order.options[0].value ? null : order.value }); };
  function pointing(view) {
    const { panel, canvas } = view;
    const at = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    const seek = (event) => { const time = timeAt(view.run, at(event)[0]); go(nearestStep(time)); };
    canvas.addEventListener("pointerdown", (event) => { if (event.button === 0) { stop(); seek(event); if (panel.drags) canvas.setPointerCapture(event.pointerId); } });
    canvas.addEventListener("pointermove", (event) => {
      if (panel.drags && !state.span && event.buttons & 1) seek(event);
      if (panel.tip) hover(view, at(event), event);
    });
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  }
  const tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
  document.body.append(tip);
  function hover(view, [px, py], event) {
    const run = view.run, h = view.panel === channel ? run.cellHeight : run.rowHeight, below = view.panel === channel && run.interference ? Math.floor((py - (channel.height(run) - run.interference.count * CELL)) / CELL) : -1;
    // Below the rows, those of cells count from -1 down.
    const row = below >= 0 && below < run.interference.count ? -below - 1 : run.rowAt.get(Math.floor(py / h));
    tip.hidden = px < MARGIN || px > MARGIN + inner(run) || row === undefined;
    if (tip.hidden) return;
    tip.replaceChildren(...view.panel.tip(run, row, timeAt(run, px)).map((each) => make("div", null, each)));
    tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8)}px`;
  }
  function nearestStep(time) {
    let best = 0;
    while (best + 1 < steps.length && steps[best + 1].time <= time) best++;
    if (best + 1 < steps.length && steps[best + 1].time - time < time - steps[best].time) best++;
    return best;
  }

  function paint(view) {
    const { panel, canvas } = view, run = view.run;
    if (view.figure.hidden) return;
    const width = panel.detail ? view.width : run.width, height = panel.height(run), all = height + (panel.axis ? AXIS : 0);
    if (panel.back) {
      const key = [generation, width, all, F.ratio(), state.order, state.from, state.to].join("|");
      if (key !== view.key) { panel.back(run, F.sized(view.back, width, all), height); view.key = key; }
    }
    const draw = F.sized(canvas, width, all);
    if (panel.back) draw.drawImage(view.back, 0, 0, width, all);
    panel.over(run, draw, height, width);
    if (panel.note) view.note.textContent = panel.note(run, column(run));
  }

  function tableOf(run) {
    const c = column(run), { offset, picked, age, capacity, symbols, budget_bits, sent_bits, num_kept, weight } = run.picks, rows = [];
    const [lost, silent, again] = ["lost", "silent", "retransmitted"].map((name) => new Set(c < 0 ? [] : run.columns[name][c]));
    const fate = (device) => (lost.has(device) ? "lost" : silent.has(device) ? "silent" : "arrived") + (again.has(device) ? ", retransmitted" : "");
    if (c >= 0) for (let i = offset[c]; i < offset[c + 1]; i++) rows.push([String(picked[i]), String(age[i]), F.fixed(capacity[i], 2), F.number(symbols[i], 5), F.number(budget_bits[i], 6), F.number(sent_bits[i], 7), F.number(num_kept[i], 7), F.fixed(weight[i], 3), fate(picked[i])]);
    const more = ["cell", "edge", "interference"].filter((name) => run.picks[name]);
    rows.forEach((row, i) => { for (const name of more) { const value = run.picks[name][offset[c] + i]; row.push(name === "interference" ? (value > 0 ? F.fixed(10 * Math.log10(value), 1) : "none") : String(value)); } });
    if (!rows.length) { run.table.replaceChildren(make("p", { class: "soft" }, "Nobody uploaded.")); return; }
    const made = F.table(["device", "age", "bit/symbol", "symbols", "bits granted", "bits sent", "elements kept", "weight", "update", ...more.map((name) => (name === "interference" ? "I/N, dB" : name))], rows, "Uploads of the aggregation in view");
    run.table.replaceChildren(made);
    if (run.columns.uploads[c] > rows.length) run.table.append(make("p", { class: "soft" }, `The first ${rows.length} of ${run.columns.uploads[c]} uploads.`));
  }
  function sentence(run) {
    const c = column(run);
    if (c < 0) return "before the first aggregation";
    const { offset, picked } = run.picks, lost = run.columns.lost[c], silent = run.columns.silent[c], who = [...picked.slice(offset[c], offset[c + 1])].filter((each) => !lost.includes(each) && !silent.includes(each)), total = run.columns.uploads[c];
    const waiting = run.columns.ready[c] - total, score = lastScore(run, c);
    const arrived = total - lost.length - silent.length, said = [`aggregation ${run.columns.index[c]}, time ${withUnit(run.columns.time[c], run)}: ${arrived === 0 ? "nobody" : arrived === 1 ? `device ${who[0]}` : `devices ${who.length < arrived ? `${who.slice(0, 12).join(", ")} and ${arrived - Math.min(12, who.length)} more` : F.listed(who)}`} uploaded`];
    if (lost.length) said.push(`the update${lost.length > 1 ? "s" : ""} of ${F.listed(lost)} did not arrive`);
    if (silent.length) said.push(`${silent.length > 1 ? "devices" : "device"} ${F.listed(silent)} sent nothing`);
    said.push(waiting ? `${F.number(waiting, 9)} ready and not picked` : run.columns.ready[c] ? "all who were ready" : "nobody was ready");
    if (score !== null) said.push(`test accuracy ${F.fixed(score)}`);
    return `${said.join("; ")}.`;
  }

  const range = make("input", { type: "range", min: 1, step: 1, id: "step", "aria-label": "Aggregation", oninput: () => { stop(); go(Number(range.value) - 1); } });
  const place = make("div", { class: "place", id: "place" });
  const play = make("button", { type: "button", id: "play", "aria-label": "Play", "aria-pressed": "false", onclick: () => toggle() }, "▶");
  const button = (words, name, act) => make("button", { type: "button", "aria-label": name, onclick: () => { stop(); act(); } }, words);
  const span = make("select", { id: "span", onchange: () => { state.span = Number(span.value); state.to = state.from; refresh(); } });
  const order = make("select", { id: "order", onchange: () => { state.order = order.value; told(); refresh(true); } }, ...[...[...new Set(F.data.runs.map((run) => run.groups && run.groups.name).filter(Boolean))].slice(0, 1).map((name) => ["group", `by ${name}`]), ["speed", "fastest first"], ["number", "by number"], ["uploads", "most uploads"]].map(([value, words]) => make("option", { value }, words)));

  // Step to a place; everything in view follows.
  function go(to, told = true) {
    state.step = Math.max(0, Math.min(steps.length - 1, to));
    moveWindow();
    views.forEach(paint);
    inDetail().forEach(tableOf);
    const step = steps[state.step], last = steps[steps.length - 1];
    range.value = state.step + 1;
    range.setAttribute("aria-valuetext", `aggregation ${step.name} of ${last.name}, time ${tidy(step.time)}`);
    place.replaceChildren(`time ${withUnit(step.time, clock())} `, make("span", null, `· ${same ? "aggregation" : "step"} ${step.name} of ${last.name}`));
    byId("now").replaceChildren(...inDetail().map((run) => make("span", null, ...(runs.length > 1 ? [make("b", null, F.label(run.title, 60)), ": "] : []), sentence(run))));
    if (told) F.setAddress(same ? { t: step.name, time: null } : { t: null, time: tidy(step.time) });
  }
  function refresh(all) {
    if (all) generation++;
    inDetail().forEach(measure);
    measureWhole();
    for (const view of views) {  // sizes are asked for here and not at every step, which would lay the page out each time
      view.figure.hidden = Boolean(view.panel.when && !view.panel.when(view.run));
      view.width = Math.max(200, Math.floor(view.figure.clientWidth));
    }
    go(state.step, false);
    document.querySelectorAll("canvas.gradient").forEach((canvas) => {
      const draw = F.sized(canvas, 84, 9);
      for (let i = 0; i < 84; i++) { draw.fillStyle = colour.heat[Math.round((i / 83) * 255)]; draw.fillRect(i, 0, 1.2, 9); }
    });
  }
  function stop() { if (state.timer) { clearInterval(state.timer); state.timer = 0; shownPlaying(); } }
  function toggle() {
    if (state.timer) { stop(); return; }
    if (state.step === steps.length - 1) go(0);
    state.timer = setInterval(() => { if (state.step >= steps.length - 1) stop(); else go(state.step + 1); }, 250);
    shownPlaying();
  }
  function shownPlaying() {
    const on = Boolean(state.timer);
    play.textContent = on ? "❚❚" : "▶"; play.setAttribute("aria-label", on ? "Pause" : "Play"); play.setAttribute("aria-pressed", String(on));
    byId("now").setAttribute("aria-live", on ? "off" : "polite");  // nobody wants four sentences a second
  }
  function fromAddress() {
    const { t, time } = F.address();
    if (Number(time) > 0) return nearestStep(Number(time));
    const wanted = Number(t), times = runs[0].columns;
    if (!Number.isFinite(wanted) || wanted < 1) return null;
    const found = times.index.findIndex((each) => each >= wanted);
    return found < 0 ? steps.length - 1 : nearestStep(times.time[found]);
  }
  // Which runs, measures and order the address names; what it does not name stays as usual.
  function readAddress() {
    const { all, rows } = F.address(), names = (all("run") || []).filter((name) => runs.some((run) => run.name === name));
    state.shown = names.length ? names : runs.slice(0, 2).map((run) => run.name);
    state.measures = all("show");
    if ([...order.options].some((each) => each.value === rows)) order.value = state.order = rows;
  }
  function keys(event) {
    if (F.typing(event)) return;
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (by) { if (/^Page/.test(event.key) && event.target !== range) return; stop(); go(state.step + by); }
    else if (event.key === "Home") { stop(); go(0); }
    else if (event.key === "End") { stop(); go(steps.length - 1); }
    else if (event.key === " " && !/^(BUTTON|SUMMARY|A)$/.test(event.target.tagName)) toggle();
    else return;
    event.preventDefault();
  }

  function choices() {
    range.max = steps.length;
    const counts = SPANS.filter((each) => each < state.end / state.gap);
    span.replaceChildren(...counts.map((each) => make("option", { value: each }, `${each} aggregations`)), make("option", { value: 0 }, "the whole run"));
    const room = window.innerWidth / Math.min(2, inDetail().length) / (state.end / state.gap);  // px of an aggregation if all are shown
    if (!counts.includes(state.span)) state.span = counts.length && room < 7 ? counts[Math.min(counts.length - 1, Math.floor(window.innerWidth / runs.length / 700))] : 0;
    span.value = state.span;
  }
  byId("scrub").append(
    make("div", { class: "buttons" }, button("◀", "One aggregation back", () => go(state.step - 1)), play, button("▶|", "One aggregation on", () => go(state.step + 1))),
    range, place,
    make("div", { class: "choices" }, make("label", null, "show", span), F.data.runs.some((run) => run.fine) ? make("label", null, "rows", order) : ""),
  );
  F.help([["← →", "one aggregation back, on"], ["Home End", "the first, the last"], ["Page ↑ ↓", "ten at a time, on the slider"], ["Space", "play, pause"], ["?", "these keys"]]);
  document.addEventListener("keydown", keys);
  window.addEventListener("hashchange", () => {
    const before = [state.shown, state.measures, state.order].join("|"), to = fromAddress();
    stop(); readAddress();
    if ([state.shown, state.measures, state.order].join("|") !== before) { build(); choices(); pickers(); refresh(true); }
    if (to !== null) go(to, false);
  });
  // Which measures are charted.
  function pickers() {
    const on = chosen();
    byId("measures").replaceChildren(make("legend", { class: "hidden" }, "charts"), ...measured().map((name) => make("label", null, make("input", { type: "checkbox", value: name, checked: on.includes(name), onchange: (event) => {
      const now = event.target.checked ? [...chosen(), name] : chosen().filter((each) => each !== name);
      state.measures = now.length && now.join() !== measured()[0] ? now : null;
      told(); build(); refresh(true); pickers();
      byId("measures").querySelector(`[value="${CSS.escape(name)}"]`).focus({ preventScroll: true });
    } }), measureName(name))));
  }

  // What the page says of the runs in words, which is there already when it is opened.
  function describe(tree) {
    byId("finding").textContent = tree.finding;
    byId("lead").textContent = tree.lead;
    document.querySelectorAll("#hero dd").forEach((each, i) => { each.textContent = runs[0].results[i][1]; });
    for (const run of runs) {
      const section = byId(`run${run.number}`);
      section.querySelector(".facts").replaceChildren(...run.facts.flatMap((each, i) => (i ? [" · ", F.label(each, 120)] : [F.label(each, 120)])));
      section.querySelector(".numbers").replaceChildren(...run.numbers.map(([name, value]) => make("div", null, make("dt", null, name), make("dd", null, F.label(value, 120)))));
    }
  }
  function show(tree, first) {
    const end = !first && state.step === steps.length - 1;
    arrange(tree.runs);
    if (first) readAddress(); else describe(tree);
    colours();
    choices();
    build();
    pickers();
    const wanted = fromAddress();
    state.step = first ? (wanted === null ? Math.min(steps.length - 1, Math.max(0, Math.round(steps.length * 0.24) - 1)) : wanted) : end ? steps.length - 1 : Math.min(state.step, steps.length - 1);
    if (F.data.live && first && wanted === null) state.step = steps.length - 1;
    refresh(true);
  }
  show(F.data, true);
  F.onRedraw(() => { colours(); build(); refresh(true); });

  // A run under way: the server that the page came from is asked for more, until the run has ended.
  if (F.data.live) {
    const told = make("span", { class: "soft", id: "live", role: "status" });
    byId("scrub").querySelector(".choices").append(told);
    let tag = F.data.live;
    let begun = null;  // when the page was first told of an aggregation, and which simulated time that was
    const over = () => {
      const going = runs.filter((run) => run.going), several = runs.length > 1;
      const far = going.length ? going[0] : runs[0], time = far.columns.time[far.C - 1], at = far.columns.index[far.C - 1];
      if (!begun) begun = [performance.now(), time];
      const speed = (time - begun[1]) / (performance.now() - begun[0]), left = speed > 0 ? Math.max(0, far.horizon - time) / speed / 1000 : null;
      const ended = runs.every((run) => run.complete) ? (several ? "the runs are complete" : "the run is complete") : several ? "no process works on the runs any more" : "the run has stopped before its end; fedtide resume continues it";
      const where = far.total ? `aggregation ${at} of ${far.total}` : `time ${tidy(time)} of ${tidy(far.horizon)}`;
      told.textContent = going.length ? `following the run: ${where}${left === null ? "" : `, about ${left < 90 ? `${Math.ceil(left)} s` : `${Math.round(left / 60)} min`} left`}` : ended;
      return !going.length;
    };
    const ask = async () => {
      try {
        const answer = await fetch("data", { headers: { "X-Seen": tag }, cache: "no-store" });
        if (answer.status === 200) { const tree = await answer.json(); tag = tree.live; show(tree, false); if (over()) return; }
      } catch { told.textContent = "the server has ended; what is here stays"; return; }
      setTimeout(ask, 1500);
    };
    if (!over()) setTimeout(ask, 1500);
  }
})();
