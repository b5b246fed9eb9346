// What selectors decided over epochs and seeds, and the statistics behind it.

const KINDS = {
  chosen: { title: "Class in play", row: "class", statistic: "statistic T of class" },
  active: { title: "Coordinates in play", row: "coordinate", statistic: "size of coordinate" },
  norm_bound: { title: "Norm bound", row: "norm bound" },
};

function shareMap(data, found, width, label) {
  return heatMap({
    width, label, rows: found.rows, columns: found.epochs, rowLabel: KINDS[found.kind].row,
    cell: (i, j) => found.share[i][j] === null ? null : {
      share: found.share[i][j], text: String(Math.round(100 * found.share[i][j])),
      title: `${KINDS[found.kind].row} ${found.rows[i]}, epoch ${found.epochs[j]}: ${show(100 * found.share[i][j], 3)} % of ${found.reached[j]} seeds`,
    },
  });
}
function seedMap(data, found, width, label) { // classes of every seed
  return heatMap({
    width, label, rows: found.seeds, columns: found.epochs, rowLabel: "seed",
    cell: (i, j) => found.choices[i][j] === null ? null : {
      kind: found.choices[i][j] - 1, text: String(found.choices[i][j]),
      title: `seed ${found.seeds[i]}, epoch ${found.epochs[j]}: class ${found.choices[i][j]}`,
    },
  });
}
function oneSeedMap(data, found, width, label, s) {
  return heatMap({
    width, label, rows: found.rows, columns: found.epochs, rowLabel: KINDS[found.kind].row,
    cell: (i, j) => {
      const choice = found.choices[s][j];
      if (choice === null) return null;
      const on = (Array.isArray(choice) ? choice : [choice]).includes(found.rows[i]);
      return { share: on ? 1 : 0, title: `${KINDS[found.kind].row} ${found.rows[i]}, epoch ${found.epochs[j]}: ${on ? "in play" : "not in play"}` };
    },
  });
}
function boundChart(data, found, width, label, read) {
  const style = look(0), each = found.choices.map((ys) => ({ x: found.epochs, y: ys, look: style, style: "thin", marks: false, plain: true }));
  return lineChart({
    width, label, whole: true, xLabel: "epoch", yLabel: "norm bound", onread: read,
    series: [...each, { x: found.epochs, y: found.median, low: found.low, high: found.high, look: style, style: "heavy", plain: true }],
  });
}

function decisionFigure(data, state, p, one, width, again) {
  const found = one.decisions, id = `${p}-${one.agent}`, about = `${data.agents[one.agent]} on ${data.problems[p].name}`;
  const options = [["share", "Share of seeds"]];
  if (found.kind === "chosen") options.push(["each", "Each seed"]);
  found.seeds.forEach((seed, i) => options.push([`seed-${i}`, `Seed ${seed}`]));
  const view = options.some(([key]) => key === state.views[id]) ? state.views[id] : "share";
  const reading = html("p", { class: "reading", "aria-live": "polite" });
  const label = `${KINDS[found.kind].title} over epochs: ${about}`;
  let picture;
  if (found.kind === "norm_bound") {
    picture = boundChart(data, found, width, `${label}. Median over seeds, band from smallest to largest.`, (x) => {
      const j = found.epochs.indexOf(x);
      reading.textContent = j < 0 ? "" : `Epoch ${x}: median ${show(found.median[j])}, from ${show(found.low[j])} to ${show(found.high[j])}`;
    });
  } else if (view === "share") picture = shareMap(data, found, width, `${label}. Share of seeds in percent.`);
  else if (view === "each") picture = seedMap(data, found, width, `${label}, seed by seed.`);
  else picture = oneSeedMap(data, found, width, `${label}. One seed.`, Number(view.slice(5)));
  const hints = {
    chosen: "Numbers in squares: percent of seeds, or the class.", active: "Numbers in squares: percent of seeds in which the coordinate is in play.",
    norm_bound: "Thick: median over seeds. Thin: single seeds.",
  };
  const notes = [hints[found.kind]];
  if (found.hidden) notes.push(`${found.hidden} coordinates that were in play least are not drawn.`);
  if (found.epochs_in_all > found.epochs.length) notes.push(`${found.epochs.length} of ${found.epochs_in_all} epochs are drawn.`);
  if (one.seeds.length > found.seeds.length) notes.push(`Single seeds: the first ${found.seeds.length} of ${one.seeds.length}.`);
  const summary = found.kind === "norm_bound"
    ? () => found.epochs.map((epoch, j) => [about, epoch, found.episode[j], found.median[j], found.low[j], found.high[j]])
    : () => found.rows.flatMap((row, i) => found.epochs.map((epoch, j) => [about, epoch, found.episode[j], row, found.share[i][j], found.reached[j]]));
  const head = found.kind === "norm_bound" ? ["median", "smallest", "largest"] : [KINDS[found.kind].row, "share", "seeds"];
  const each = () => found.seeds.flatMap((seed, i) => found.epochs.map((epoch, j) => {
    const choice = found.choices[i][j];
    return [about, seed, epoch, Array.isArray(choice) ? choice.join(" ") : choice];
  }));
  const seeds = csvButton(`csv-seeds-${id}`, `${label}, by seed`, `seeds-${about}`, ["of", "seed", "epoch", found.kind], each);
  seeds.textContent = "CSV by seed";
  return html("figure", {}, html("h3", {}, KINDS[found.kind].title, ": ", named(data.agents[one.agent])),
    html("p", { class: "note" }, named(data.problems[p].name)),
    found.kind === "norm_bound" ? null : html("div", { class: "controls" }, chooser(`view-${id}`, "Show", options, view, (value) => { state.views[id] = value; again(); })),
    picture, reading, html("figcaption", {}, notes.join(" ")),
    html("div", { class: "tools" }, csvButton(`csv-decisions-${id}`, label, `decisions-${about}`, ["of", "epoch", "first_episode", ...head], summary), seeds));
}

function evidenceLines(found) {
  const evidence = found.evidence, few = evidence.names.length <= 7;
  const last = found.share.map((row) => row[row.length - 1] >= 0.5);
  const kept = new Set(found.rows.filter((_, i) => last[i]));
  const style = (m) => few ? look(m) : kept.has(evidence.names[m]) ? look(0) : { ...look(3), colour: "grey" };
  const keys = few
    ? evidence.names.map((name, m) => [look(m), `${KINDS[found.kind].row} ${name}`])
    : [[look(0), `in play at the end (${kept.size})`], [{ ...look(3), colour: "grey" }, "not in play at the end"]];
  return { few, style, keys };
}
const limit = { colour: "k6", dash: "12 4", mark: null };

function evidenceFigure(data, state, p, one, width) {
  const found = one.decisions, evidence = found.evidence, id = `${p}-${one.agent}`;
  const about = `${data.agents[one.agent]} on ${data.problems[p].name}`, minus = state.evidence === "minus";
  const { few, style, keys } = evidenceLines(found);
  const off = (ys, j) => (ys[j] === null || evidence.threshold.median[j] === null ? null : ys[j] - (minus ? evidence.threshold.median[j] : 0));
  const shift = (ys) => found.epochs.map((_, j) => off(ys, j));
  const series = evidence.lines.map((line, m) => ({
    x: found.epochs, y: shift(line.median), low: few ? shift(line.low) : null, high: few ? shift(line.high) : null,
    look: style(m), marks: few, style: few ? "" : "thin",
  }));
  series.push({ x: found.epochs, y: shift(evidence.threshold.median), look: limit, style: "heavy", marks: false });
  const values = series.flatMap((s) => s.y).filter((v) => v !== null);
  const log = !minus && values.length > 0 && values.every((v) => v > 0) && Math.max(...values) > 30 * Math.min(...values);
  const reading = html("p", { class: "reading", "aria-live": "polite" });
  const read = (x) => {
    const j = found.epochs.indexOf(x);
    reading.textContent = j < 0 ? "" : `Epoch ${x}: threshold ${show(evidence.threshold.median[j])}` +
      (few ? "; " + evidence.lines.map((line, m) => `${evidence.names[m]}: ${show(line.median[j])}`).join(", ") : "");
  };
  const what = KINDS[found.kind].statistic;
  const chart = lineChart({
    width, series, yLog: log, whole: true, xLabel: "epoch", yLabel: minus ? "minus threshold" : found.kind === "chosen" ? "statistic" : "size of estimate",
    onread: read, label: `The ${what} against its threshold over epochs: ${about}. Medians over seeds.`,
  });
  const rows = () => evidence.lines.flatMap((line, m) => found.epochs.map((epoch, j) => [
    about, epoch, evidence.names[m], line.median[j], line.low[j], line.high[j], evidence.threshold.median[j]]));
  return html("figure", {}, html("h3", {}, found.kind === "chosen" ? "Statistic and threshold: " : "Estimate and threshold: ", named(data.agents[one.agent])),
    html("p", { class: "note" }, named(data.problems[p].name)), chart, reading,
    html("ul", { class: "keys" }, [...keys, [limit, "threshold"]].map(([sample, text], i) =>
      html("li", {}, html("span", { class: "key" }, keySample(sample, i === keys.length ? "heavy" : ""), text)))),
    html("figcaption", {}, few ? "Medians over seeds, bands from the smallest to the largest seed." : "Medians over seeds."),
    html("div", { class: "tools" }, csvButton(`csv-evidence-${id}`, `${what} against its threshold, ${about}`, `evidence-${about}`,
      ["of", "epoch", KINDS[found.kind].row, "median", "smallest", "largest", "threshold"], rows)));
}

function decisionsSection(data, state, width, again) {
  const figures = data.problems.flatMap((problem, p) => problem.agents.filter((one) => one.decisions).flatMap((one) => [
    decisionFigure(data, state, p, one, width, again),
    one.decisions.evidence ? evidenceFigure(data, state, p, one, width) : null]));
  if (!figures.length) return null;
  const choose = radios("evidence", "Statistics", [["values", "Values"], ["minus", "Minus threshold"]], state.evidence,
    (value) => { state.evidence = value; again(); });
  const any = data.problems.some((problem) => problem.agents.some((one) => one.decisions && one.decisions.evidence));
  return html("section", { "aria-labelledby": "decisions" }, html("h2", { id: "decisions" }, "Decisions"),
    html("p", { class: "note" }, "What each selector had in play in every epoch, and what it held against its threshold."),
    any ? html("div", { class: "controls" }, choose) : null, html("div", { class: "panels" }, figures));
}
