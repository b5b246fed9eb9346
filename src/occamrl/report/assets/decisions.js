// What selectors decided over epochs and seeds.

const KINDS = {
  chosen: {
    title: "Class in play", row: "class", statistic: "statistic T of class", axis: "statistic",
    hint: "Numbers in squares: percent of seeds, or the class.",
  },
  active: {
    title: "Coordinates in play", row: "coordinate", statistic: "size of coordinate", axis: "size of estimate",
    hint: "Numbers in squares: percent of seeds in which the coordinate is in play.",
  },
  norm_bound: { title: "Norm bound", row: "norm bound", hint: "Thick: median over seeds. Thin: single seeds." },
};

function shareMap(found, width, label) {
  const row = KINDS[found.kind].row;
  return heatMap({
    width, label, rows: found.labels, columns: found.epochs, episodes: found.episode, rowLabel: row,
    cell: (i, j) => {
      const share = found.share[i][j];
      if (share === null) return null;
      const of = `${show(100 * share, 3)} % of ${found.reached[j]} seeds`;
      return {
        share, text: String(Math.round(100 * share)), title: `${row} ${found.labels[i]}, epoch ${found.epochs[j]}: ${of}`,
      };
    },
  });
}

function seedMap(found, width, label) { // the class of every seed
  return heatMap({
    width, label, rows: found.seeds, columns: found.epochs, episodes: found.episode, rowLabel: "seed",
    cell: (i, j) => {
      const choice = found.choices[i][j];
      if (choice === null) return null;
      const title = `seed ${found.seeds[i]}, epoch ${found.epochs[j]}: class ${choice}`;
      return { kind: Math.max(choice - 1, 0), text: String(choice), title };
    },
  });
}

function oneSeedMap(found, width, label, seed) {
  const row = KINDS[found.kind].row;
  return heatMap({
    width, label, rows: found.labels, columns: found.epochs, episodes: found.episode, rowLabel: row,
    cell: (i, j) => {
      const choice = found.choices[seed][j];
      if (choice === null) return null;
      const on = (Array.isArray(choice) ? choice : [choice]).includes(found.rows[i]);
      const title = `${row} ${found.rows[i]}, epoch ${found.epochs[j]}: ${on ? "in play" : "not in play"}`;
      return { share: on ? 1 : 0, title };
    },
  });
}

function boundChart(found, width, label, reading) {
  const style = look(0), x = found.epochs;
  const each = found.choices.map((y) => ({ x, y, look: style, style: "thin", marks: false, plain: true }));
  const middle = { x, y: found.median, low: found.low, high: found.high, look: style, style: "heavy", plain: true };
  const onread = (epoch) => {
    const j = found.epochs.indexOf(epoch);
    reading.textContent = j < 0 ? ""
      : `Epoch ${epoch}: median ${show(found.median[j])}, from ${show(found.low[j])} to ${show(found.high[j])}`;
  };
  return lineChart({
    width, label, whole: true, xLabel: "epoch", yLabel: "norm bound", onread, series: [...each, middle],
  });
}

function decisionPicture(found, view, width, label, reading) {
  if (found.kind === "norm_bound")
    return boundChart(found, width, `${label}. Median over seeds, band from smallest to largest.`, reading);
  if (view === "share") return shareMap(found, width, `${label}. Share of seeds in percent.`);
  if (view === "each") return seedMap(found, width, `${label}, seed by seed.`);
  return oneSeedMap(found, width, `${label}. One seed.`, Number(view.slice(5)));
}

function decisionDownloads(found, id, about, label) {
  const bound = found.kind === "norm_bound";
  const head = ["of", "epoch", "first_episode", ...(bound ? ["median", "smallest", "largest"]
    : [KINDS[found.kind].row, "share", "seeds"])];
  const start = (j) => [about, found.epochs[j], found.episode[j]];
  const rows = bound
    ? () => found.epochs.map((_, j) => [...start(j), found.median[j], found.low[j], found.high[j]])
    : () => found.rows.flatMap((row, i) =>
      found.epochs.map((_, j) => [...start(j), row, found.share[i][j], found.reached[j]]));
  const each = () => found.seeds.flatMap((seed, i) => found.epochs.map((epoch, j) => {
    const choice = found.choices[i][j];
    return [about, seed, epoch, Array.isArray(choice) ? choice.join(" ") : choice];
  }));
  const columns = ["of", "seed", "epoch", found.kind];
  const seeds = csvButton(`csv-seeds-${id}`, `${label}, by seed`, `seeds-${about}`, columns, each);
  seeds.textContent = "CSV by seed";
  return html("div", { class: "tools" }, csvButton(`csv-decisions-${id}`, label, `decisions-${about}`, head, rows), seeds);
}

function decisionFigure(data, state, p, one, width, again) {
  const found = one.decisions, id = `${p}-${one.agent}`, kind = KINDS[found.kind];
  const about = `${data.agents[one.agent]} on ${data.problems[p].name}`, label = `${kind.title} over epochs: ${about}`;
  const options = [["share", "Share of seeds"]];
  if (found.kind === "chosen") options.push(["each", "Each seed"]);
  found.seeds.forEach((seed, i) => options.push([`seed-${i}`, `Seed ${seed}`]));
  const view = options.some(([key]) => key === state.views[id]) ? state.views[id] : "share";
  const choose = (value) => { state.views[id] = value; again(); };
  const reading = html("p", { class: "reading", "aria-live": "polite" });
  const notes = [kind.hint];
  if (found.labels && found.labels.some((label) => label.endsWith(" *"))) notes.push("A star marks what is true.");
  if (found.hidden) notes.push(`${found.hidden} coordinates that were in play least are not drawn.`);
  if (found.epochs_in_all > found.epochs.length)
    notes.push(`${found.epochs.length} of ${found.epochs_in_all} epochs are drawn.`);
  if (one.seeds.length > found.seeds.length)
    notes.push(`Single seeds: the first ${found.seeds.length} of ${one.seeds.length}.`);
  return html("figure", {}, html("h3", {}, kind.title, ": ", named(data.agents[one.agent])),
    html("p", { class: "note" }, named(data.problems[p].name)),
    found.kind === "norm_bound" ? null
      : html("div", { class: "controls" }, chooser(`view-${id}`, "Show", options, view, choose)),
    decisionPicture(found, view, width, label, reading), reading, html("figcaption", {}, notes.join(" ")),
    decisionDownloads(found, id, about, label));
}

function decisionsSection(data, state, width, again) {
  const figures = data.problems.flatMap((problem, p) =>
    problem.agents.filter((one) => one.decisions).flatMap((one) => [
      decisionFigure(data, state, p, one, width, again),
      one.decisions.evidence ? evidenceFigure(data, state, p, one, width) : null]));
  if (!figures.length) return null;
  const choose = radios("evidence", "Statistics", [["values", "Values"], ["minus", "Minus threshold"]], state.evidence,
    (value) => { state.evidence = value; again(); });
  const any = data.problems.some((problem) => problem.agents.some((one) => one.decisions && one.decisions.evidence));
  return html("section", { "aria-labelledby": "decisions" }, html("h2", { id: "decisions" }, "Decisions"),
    html("p", { class: "note" },
      "What each selector had in play in every epoch, and what it held against its threshold."),
    any ? html("div", { class: "controls" }, choose) : null, html("div", { class: "panels" }, figures));
}
