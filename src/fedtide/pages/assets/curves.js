"use strict";
// The mathematics of a study's page: what fedtide.studies.statistics and .reaching do, on the same columns. Nothing is drawn here.
const curves = (() => {
  const { data } = fedtide;
  const decoded = [];
  function decode(stored) {
    if (Array.isArray(stored)) return Float64Array.from(stored);
    const values = new Float64Array(stored.steps.length);
    let sum = 0;
    stored.steps.forEach((step, i) => { sum += step; values[i] = sum; });
    return values;
  }
  const column = (run, name) => {
    const number = data.runs[run][name];
    return number === undefined ? null : (decoded[number] = decoded[number] || decode(data.columns[number]));
  };

  // The value at x of a line through points; before the first and after the last it stays. As numpy.interp.
  function at(x, xs, ys) {
    const last = xs.length - 1;
    if (x < xs[0]) return ys[0];
    if (x >= xs[last]) return ys[last];
    let low = 0, high = last;
    while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle; else high = middle; }
    return x === xs[low] ? ys[low] : ys[low] + (ys[low + 1] - ys[low]) / (xs[low + 1] - xs[low]) * (x - xs[low]);
  }

  // The average of a column up to every evaluation; accuracies count by the time that each model lasts, chance before the first.
  function averageSoFar(run, name) {
    const values = column(run, name), found = new Float64Array(values.length);
    let sum = 0;
    if (name !== "test_accuracy") {
      values.forEach((value, i) => { sum += value; found[i] = sum / (i + 1); });
      return found;
    }
    const time = column(run, "time");
    time.forEach((now, i) => { sum += (i ? values[i - 1] : data.runs[run].chance) * (now - (i ? time[i - 1] : 0)); found[i] = sum / now; });
    return found;
  }

  // A column averaged over one T_max around every evaluation, half of it at the ends.
  function smoothed(run, name) {
    const values = column(run, name), time = column(run, "time"), half = 0.5 * data.runs[run].window * (1 + 1e-9);
    const total = new Float64Array(values.length + 1);
    values.forEach((value, i) => { total[i + 1] = total[i] + value; });
    let first = 0, last = 0;
    return Float64Array.from(time, (now) => {
      while (time[first] < now - half) first += 1;
      while (last < time.length && time[last] <= now + half) last += 1;
      return (total[last] - total[first]) / (last - first);
    });
  }

  // The points of x at which every curve has begun and none has ended; all, if there is no such point.
  function reached(x, grids) {
    const low = Math.max(...grids.map((grid) => grid[0])), high = Math.min(...grids.map((grid) => grid[grid.length - 1]));
    const inside = x.filter((each) => each >= low && each <= high);
    return inside.length ? inside : x;
  }

  // Mean and interval of lines [n][m] over their first axis; of logarithms if a ratio is meant.
  function spread(x, lines, ratio = false) {
    const n = lines.length, back = ratio ? Math.exp : (value) => value;
    const mean = new Float64Array(x.length), low = new Float64Array(x.length), high = new Float64Array(x.length);
    for (let i = 0; i < x.length; i++) {
      let sum = 0, squares = 0;
      for (const line of lines) sum += line[i];
      const middle = sum / n;
      for (const line of lines) squares += (line[i] - middle) ** 2;
      const width = n > 1 ? data.width[n] * Math.sqrt(squares / (n - 1)) : 0;
      mean[i] = back(middle); low[i] = back(middle - width); high[i] = back(middle + width);
    }
    return { x, mean, low, high, n };
  }

  function band(runs, name, over, { ratio = false, smooth = false } = {}) {
    const grids = runs.map((run) => column(run, over));
    const x = reached(grids[0], grids);
    const lines = runs.map((run, i) => {
      const values = smooth ? smoothed(run, name) : column(run, name);
      return Float64Array.from(x, (each) => (ratio ? Math.log(at(each, grids[i], values)) : at(each, grids[i], values)));
    });
    return spread(x, lines, ratio);
  }

  // Of what is there of each on one or several instruction paths, the runs on the path that most have.
  function onOnePath(group) {
    const counts = new Map();
    for (const each of group) for (const path of new Set(each.map(([name]) => name))) counts.set(path, (counts.get(path) || 0) + 1);
    let best = null;
    const known = (path) => !path.endsWith("unknown");
    for (const path of counts.keys()) {
      if (best === null || counts.get(path) > counts.get(best) || counts.get(path) === counts.get(best) && known(path) && !known(best)) best = path;
    }
    return group.map((each) => (each.find(([path]) => path === best) || each[0])[1]);
  }
  function paired(...sides) {
    const seeds = Object.keys(sides[0].runs).filter((seed) => sides.every((side) => side.runs[seed])).sort((a, b) => a - b);
    return seeds.map((seed) => onOnePath(sides.map((side) => side.runs[seed])));
  }

  // One variant's average so far less another's, over the seeds that both have.
  function differenceBand(one, other, name, over) {
    const pairs = paired(one, other);
    if (!pairs.length) return null;
    const [first, second] = pairs[0].map((run) => column(run, over));
    const longer = second[0] > first[0] || second[0] === first[0] && second.length > first.length ? second : first;
    const x = reached(longer, pairs.flat().map((run) => column(run, over)));
    const lines = pairs.map(([a, b]) => {
      const [left, right] = [averageSoFar(a, name), averageSoFar(b, name)];
      return Float64Array.from(x, (each) => at(each, column(a, over), left) - at(each, column(b, over), right));
    });
    return { ...spread(x, lines), lines };
  }

  // What of an axis each run had spent at the first evaluation that shows the accuracy, or at its last one; and whether one does.
  const reaching = (runs, over, accuracy) => runs.map((run) => {
    const first = column(run, "test_accuracy").findIndex((value) => value >= accuracy);
    return [column(run, over).at(first), first >= 0];
  });

  return { column, at, averageSoFar, smoothed, band, paired, differenceBand, reaching };
})();
