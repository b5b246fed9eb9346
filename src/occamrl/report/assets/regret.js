// Regret: curves, their summary, and paired differences.

function headlineSection(data) {
  return html("section", { "aria-labelledby": "headline", class: "headline" },
    html("h2", { id: "headline" }, "In short"),
    html("dl", {}, data.problems.map((problem) => [
      html("dt", {}, named(problem.name)),
      html("dd", {}, [problem.headline].flat().map((sentence) => html("p", {}, named(sentence))))])));
}

function sweepFigure(sweep, i, width) {
  const series = sweep.lines.map((line, j) => ({ x: line.x, y: line.mean, low: line.low, high: line.high, look: look(j) }));
  const all = series.flatMap((line) => line.y).filter((y) => y > 0), xs = series.flatMap((line) => line.x);
  const yLog = all.length === series.flatMap((line) => line.y).length && Math.max(...all) > 20 * Math.min(...all);
  const xLog = Math.min(...xs) > 0 && Math.max(...xs) > 20 * Math.min(...xs);
  const values = [...new Set(xs)].sort((a, b) => a - b);
  const about = `total regret against ${sweep.parameter}, ${sweep.where}`;
  const rows = () => sweep.lines.flatMap((line) => line.x.map((x, k) =>
    [sweep.where, line.name, x, line.mean[k], line.low && line.low[k], line.high && line.high[k]]));
  return html("figure", {}, html("h3", {}, "Regret against ", named(sweep.parameter)),
    html("p", { class: "note" }, named(sweep.where)),
    lineChart({ width, series, xLog, yLog, xTicks: values.length <= 8 ? values : null, zero: true, xLabel: sweep.parameter, yLabel: "total regret", label: about }),
    html("ul", { class: "keys" }, sweep.lines.map((line, j) =>
      html("li", {}, html("span", { class: "key" }, keySample(look(j)), named(line.name))))),
    html("div", { class: "tools" }, csvButton(`csv-sweep-${i}`, about, `sweep-${sweep.where}-${sweep.parameter}`,
      ["of", "agent", sweep.parameter, "mean", "low", "high"], rows)));
}

function sweepsSection(data, width) {
  if (!data.sweeps.length) return null;
  return html("section", { "aria-labelledby": "sweeps" }, html("h2", { id: "sweeps" }, "Parameters"),
    html("p", { class: "note" }, "Mean total regret over seeds for every value, with its interval."),
    html("div", { class: "panels" }, data.sweeps.map((sweep, i) => sweepFigure(sweep, i, width))));
}

function regretFigure(data, state, p, width, again) {
  const problem = data.problems[p], log = state.axes === "log", interval = state.band === "interval";
  const shown = problem.agents.filter((one) => !state.hidden.has(one.agent));
  const readings = new Map();
  const reading = html("p", { class: "reading", "aria-live": "polite" });
  const series = shown.map((one) => ({
    x: one.curve.episode, y: one.curve.mean, look: look(one.agent),
    low: interval ? one.curve.low : one.curve.smallest, high: interval ? one.curve.high : one.curve.largest,
  }));
  const read = (x) => {
    reading.textContent = x === null ? "" : `Episode ${show(x, 8)}`;
    for (const one of problem.agents) {
      const at = x === null ? -1 : one.curve.episode.findLastIndex((v) => v <= x);
      readings.get(one.agent).textContent = at < 0 || state.hidden.has(one.agent) ? "" : show(one.curve.mean[at]);
    }
  };
  const ends = shown.map((one) => `${data.agents[one.agent]} ${show(one.regret.mean)}`).join("; ");
  const chart = lineChart({
    width, series, xLog: log, yLog: log, zero: true, xLabel: "episode", yLabel: "cumulative regret", onread: read,
    label: `Mean cumulative regret over episodes on ${problem.name}. At the end: ${ends}. Arrow keys read values.`,
  });
  chart.id = `regret-${p}`;
  const keys = html("ul", { class: "keys", "aria-label": "Agents, press to hide or show" }, problem.agents.map((one) => {
    const output = html("output", {});
    readings.set(one.agent, output);
    const press = () => { state.hidden.has(one.agent) ? state.hidden.delete(one.agent) : state.hidden.add(one.agent); again(); };
    return html("li", {}, html("button", {
      type: "button", id: `key-${p}-${one.agent}`, "aria-pressed": String(!state.hidden.has(one.agent)), onclick: press,
    }, keySample(look(one.agent)), named(data.agents[one.agent]), output));
  }));
  const few = problem.agents.some((one) => one.seeds.length < data.fewest);
  const zero = log && shown.some((one) => one.curve.mean.every((v) => v === 0));
  const notes = [
    few && interval ? `With fewer than ${data.fewest} seeds there is no interval.` : "",
    zero ? "A curve that stays at zero has no place on a logarithmic axis." : "",
  ].join(" ").trim();
  const rows = () => problem.agents.flatMap((one) => one.curve.episode.map((k, i) => [
    problem.name, data.agents[one.agent], one.seeds.length, k, one.curve.mean[i], one.curve.low && one.curve.low[i],
    one.curve.high && one.curve.high[i], one.curve.smallest[i], one.curve.largest[i]]));
  return html("figure", {}, html("h3", {}, named(problem.name)), chart, reading, keys,
    notes ? html("figcaption", {}, notes) : null,
    html("div", { class: "tools" }, csvButton(`csv-regret-${p}`, `regret curves on ${problem.name}`, `regret-${problem.name}`,
      ["problem", "agent", "seeds", "episode", "mean", "low", "high", "smallest", "largest"], rows)));
}

function regretSection(data, state, width, again) {
  const set = (name) => (value) => { state[name] = value; again(); };
  return html("section", { "aria-labelledby": "regret" }, html("h2", { id: "regret" }, "Regret"),
    html("div", { class: "controls" },
      radios("axes", "Axes", [["linear", "Linear"], ["log", "Log-log"]], state.axes, set("axes")),
      radios("band", "Band", [["interval", "95 % interval"], ["range", "All seeds"]], state.band, set("band"))),
    html("p", { class: "note" }, "Lines are means over seeds. ", state.band === "interval"
      ? "Bands are pointwise 95 % bootstrap intervals of the mean, over seeds."
      : "Bands reach from the smallest to the largest seed."),
    html("div", { class: "panels" }, data.problems.map((_, p) => regretFigure(data, state, p, width, again))));
}

function settledText(one) {
  const found = one.decisions && one.decisions.settled;
  if (!found) return "–";
  const final = Array.isArray(found.final) ? `{${found.final.slice(0, 12).join(", ")}}` : `class ${found.final}`;
  return [`episode ${show(found.episode, 8)}`, html("span", { class: "ends" }, `${final} in ${found.agree} of ${found.seeds}`)];
}

function summarySection(data) {
  const columns = [["Agent"], ["Seeds", "extra"], ["Mean regret"], ["Median", "extra"], ["IQM", "extra"],
    ["Log-log slope", "extra"], ["Plans", "extra"], ["Pessimistic episodes", "extra"], ["Seconds per run", "extra"], ["Lock-in"]];
  const all = data.problems.map((problem, p) => {
    const of = (name) => problem.agents.map((one) => one.regret[name]), form = even(of("mean"));
    const mark = (name, value, ends) => {
      const shown = withEnds(value, ends, form);
      return value === Math.min(...of(name)) && problem.agents.length > 1 ? html("span", { class: "best" }, shown) : shown;
    };
    const plans = even(problem.agents.map((one) => one.plans)), seconds = even(problem.agents.map((one) => one.wall_time));
    return table(`summary-${p}`, named(problem.name), columns, problem.agents.map((one) => [
      named(data.agents[one.agent]), one.seeds.length, mark("mean", one.regret.mean, one.regret.interval),
      mark("median", one.regret.median), mark("iqm", one.regret.iqm),
      one.slope ? withEnds(one.slope.mean, one.slope.interval, (v) => v.toFixed(2)) : "–", plans(one.plans),
      `${show(100 * one.pessimistic, 2)} %`, seconds(one.wall_time), settledText(one)]));
  });
  const seeds = () => data.problems.flatMap((problem) => problem.agents.flatMap((one) =>
    one.seeds.map((seed, i) => [problem.name, data.agents[one.agent], seed, one.episodes, one.totals[i]])));
  return html("section", { "aria-labelledby": "summary" }, html("h2", { id: "summary" }, "Total regret"),
    html("p", { class: "note" }, `In brackets: 95 % bootstrap intervals over seeds, from ` +
      `${data.fewest} seeds on. The slope is that of log regret against log episode over the last tenfold of episodes; ` +
      "lock-in is the episode from which the decision no longer changes, its median over seeds."),
    tables(all), html("div", { class: "controls tools" }, csvButton("csv-totals", "total regret of each seed", "total-regret",
      ["problem", "agent", "seed", "episodes", "total_regret"], seeds)));
}

// One axis for the pictures of a table: logarithmic on both sides of zero where one agent would push the others onto it.
function forestAxis(rows) {
  const sizes = rows.flatMap((row) => [row.mean, ...(row.interval || [])]).map(Math.abs), most = Math.max(1e-12, ...sizes);
  const least = Math.min(most, ...rows.map((row) => Math.abs(row.mean)).filter((v) => v > 0));
  const step = 10 ** (Math.floor(Math.log10(most)) - 1), wide = most > 30 * least;
  if (!wide) {
    const reach = Math.ceil(most / step - 1e-9) * step;
    return { wide, ticks: [-reach, 0, reach], at: (v) => 72 + (66 * v) / reach };
  }
  const low = Math.floor(Math.log10(least)), high = Math.ceil(Math.log10(most) - 1e-9), unit = 10 ** low;
  const decades = Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i));
  const at = (v) => 72 + (66 * Math.sign(v) * Math.log1p(Math.abs(v) / unit)) / Math.log1p(10 ** high / unit);
  return { wide, ticks: [...decades.map((v) => -v).reverse(), 0, ...decades], at };
}

function forest(row, X) {
  const ends = row.interval || [row.mean, row.mean];
  return svg("svg", { viewBox: "0 0 144 26", role: "img", "aria-label": `${show(row.mean)} ${showEnds(row.interval) || ""}` },
    svg("line", { class: "axis", x1: 72, x2: 72, y1: 1, y2: 25 }),
    svg("path", { class: "line k0", d: `M${X(ends[0])},13H${X(ends[1])}` +
      (row.interval ? `M${X(ends[0])},6V20M${X(ends[1])},6V20` : "") }),
    svg("path", { class: "mark k0", d: MARKS[0](3), transform: `translate(${X(row.mean)} 13)` }));
}

function forestTicks({ ticks, at }) { // below the pictures
  const label = tickLabels([ticks[ticks.length - 1]], false)[0];
  return svg("svg", { viewBox: "0 0 144 26", "aria-hidden": "true" },
    svg("path", { class: "axis", d: `M6,4H138${ticks.map((v) => `M${at(v)},1V7`).join("")}` }),
    svg("text", { x: 1, y: 20 }, `−${label}`), svg("text", { x: 72, y: 20, "text-anchor": "middle" }, "0"),
    svg("text", { x: 143, y: 20, "text-anchor": "end" }, label));
}

function differencesSection(data, state, again) {
  if (data.agents.length < 2) return null;
  const offered = [...new Set(data.problems.flatMap((problem) => problem.differences.map((row) => row.baseline)))];
  if (!offered.length) return null;
  if (!offered.includes(state.baseline)) state.baseline = offered.includes(data.baseline) ? data.baseline : offered[0];
  const columns = [["Agent"], ["Pairs", "extra"], ["Mean difference"], ["Interval", "picture"], ["Median", "extra"],
    ["Less / more regret", "extra"], ["Seeds left out", "text extra"]];
  const some = data.problems.some((problem) => problem.differences.some((row) => row.unpaired.length));
  const kept = (line) => (some ? line : line.slice(0, -1));
  let wide = false;
  const shown = data.problems.map((problem, p) => {
    const rows = problem.differences.filter((row) => row.baseline === state.baseline).sort((a, b) => a.agent - b.agent);
    if (!rows.length) return html("p", { class: "note" }, named(problem.name), ": no seed in common with this baseline.");
    const form = even(rows.map((row) => row.mean)), axis = forestAxis(rows);
    wide ||= axis.wide;
    return table(`differences-${p}`, named(problem.name), kept(columns), rows.map((row) => kept([
      named(data.agents[row.agent]), row.pairs, withEnds(row.mean, row.interval, form), forest(row, axis.at), form(row.median),
      `${row.less} / ${row.more}`, row.unpaired.length ? row.unpaired.slice(0, 12).join(", ") +
        (row.unpaired.length > 12 ? ` and ${row.unpaired.length - 12} more` : "") : "–"])),
      kept(["", "", "", forestTicks(axis), "", "", ""]));
  });
  const all = () => data.problems.flatMap((problem) => problem.differences.map((row) => [
    problem.name, data.agents[row.agent], data.agents[row.baseline], row.pairs, row.mean, row.interval && row.interval[0],
    row.interval && row.interval[1], row.median, row.less, row.more, row.unpaired.join(" ")]));
  return html("section", { "aria-labelledby": "differences" }, html("h2", { id: "differences" }, "Paired differences"),
    html("p", { class: "note" }, "Total regret of the agent minus that of the baseline, seed by seed: both met the same " +
      "random numbers. Below zero, the agent had less regret. Seeds that only one of them has are left out. " +
      "The baseline is ", named(data.agents[state.baseline]), ".",
      wide ? " Where differences are of very different size, the axis is logarithmic on both sides of zero." : ""),
    html("div", { class: "controls" }, chooser("baseline", "Baseline", offered.sort((a, b) => a - b).map((i) => [i, data.agents[i]]),
      state.baseline, (value) => { state.baseline = Number(value); again(); })),
    tables(shown), html("div", { class: "controls tools" }, csvButton("csv-differences", "paired differences", "paired-differences",
      ["problem", "agent", "baseline", "pairs", "mean", "low", "high", "median", "less", "more", "unpaired"], all)));
}
