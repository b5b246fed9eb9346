// What selectors decided over episodes and seeds, and what they held against their thresholds.

const KINDS = {
  chosen: {
    title: "Class in play", row: "class", statistic: "statistic", hint: "Numbers in squares: percent of seeds, or the class.",
  },
  active: {
    title: "Coordinates in play", row: "coordinate", statistic: "size of estimate",
    hint: "Numbers in squares: percent of seeds in which the coordinate is in play.",
  },
  norm_bound: { title: "Norm bound", row: "norm bound", hint: "Thick: median over seeds. Thin: single seeds." },
};
const THRESHOLD = { colour: "k6", dash: "12 4", mark: null };

// Squares over epochs. options: width, label, rows (names), episodes (in which epochs begin), rowLabel,
// cell(i, j) -> { share | kind, text, title } or null.
function heatMap(options) {
  const { width, rows, episodes } = options;
  const left = 28 + 7.5 * Math.max(2, ...rows.map((row) => String(row).length)), top = 6, right = width - 6;
  const wide = (right - left) / episodes.length, high = Math.max(9, Math.min(24, 420 / rows.length));
  const bottom = top + high * rows.length, height = bottom + 40;
  const frame = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.label });
  const begins = tickLabels(episodes, true);
  const everyRow = Math.ceil(13 / high), everyColumn = Math.ceil((12 + 7 * Math.max(...begins.map((t) => t.length))) / wide);
  rows.forEach((row, i) => {
    const y = top + i * high;
    if (i % everyRow === 0) frame.append(
      svg("text", { x: left - 6, y: y + high / 2, "text-anchor": "end", "dominant-baseline": "central" }, row));
    episodes.forEach((_, j) => {
      const found = options.cell(i, j), x = left + j * wide;
      if (found === null) return;
      const { kind, share, text } = found, filled = kind !== undefined || share > 0;
      frame.append(svg("rect", {
        x, y, width: wide, height: high, class: !filled ? "empty" : kind === undefined ? "square" : `class k${kind % 7}`,
        "fill-opacity": kind === undefined && filled ? (0.12 + 0.88 * share).toFixed(3) : null,
      }, svg("title", {}, found.title)));
      if (filled && text && wide >= 7.5 * text.length + 3 && high >= 12) frame.append(svg("text", {
        x: x + wide / 2, y: y + high / 2, class: `inside ${kind !== undefined || share > 0.5 ? "on" : "off"}`,
      }, text));
    });
  });
  begins.forEach((text, j) => {
    if (j % everyColumn === 0) frame.append(
      svg("text", { x: left + (j + 0.5) * wide, y: bottom + 15, "text-anchor": "middle" }, text));
  });
  frame.append(
    svg("text", { x: (left + right) / 2, y: height - 5, "text-anchor": "middle" }, "from episode"),
    svg("text", { transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, options.rowLabel));
  return frame;
}

function decisionMap(found, view, width, label) {
  const row = KINDS[found.kind].row, from = (j) => `from episode ${show(found.episode[j], 8)}`;
  const shared = { width, episodes: found.episode, rows: found.labels, rowLabel: row };
  if (view === "share") return heatMap({ ...shared, label: `${label}. Share of seeds in percent.`, cell: (i, j) => {
    const share = found.share[i][j];
    if (share === null) return null;
    const title = `${row} ${found.labels[i]}, ${from(j)}: ${show(100 * share, 3)} % of ${found.reached[j]} seeds`;
    return { share, text: String(Math.round(100 * share)), title };
  } });
  if (view === "each") return heatMap({ ...shared, rows: found.seeds, rowLabel: "seed", label: `${label}, seed by seed.`, cell: (i, j) => {
    const choice = found.choices[i][j];
    if (choice === null) return null;
    return { kind: Math.max(choice - 1, 0), text: String(choice), title: `seed ${found.seeds[i]}, ${from(j)}: class ${choice}` };
  } });
  const choices = found.choices[Number(view.slice(5))];
  return heatMap({ ...shared, label: `${label}. One seed.`, cell: (i, j) => {
    if (choices[j] === null) return null;
    const on = [choices[j]].flat().includes(found.rows[i]);
    return { share: on ? 1 : 0, title: `${row} ${found.rows[i]}, ${from(j)}: ${on ? "" : "not "}in play` };
  } });
}

function boundChart(found, width, label, reading) {
  const shared = { x: found.episode, look: look(0), plain: true };
  const each = found.choices.map((y) => ({ ...shared, y, style: "thin", marks: false }));
  const middle = { ...shared, y: found.median, low: found.low, high: found.high, style: "heavy" };
  const onread = (episode) => {
    const j = found.episode.indexOf(episode);
    reading.textContent = j < 0 ? ""
      : `From episode ${show(episode, 8)}: median ${show(found.median[j])}, from ${show(found.low[j])} to ${show(found.high[j])}`;
  };
  return lineChart({
    width, label: `${label}. Median over seeds, band from smallest to largest.`, xLog: true, xLabel: "from episode",
    yLabel: "norm bound", onread, series: [...each, middle],
  });
}

// Up to seven lines have a look each; more are told apart by whether they are in play at the end.
function evidenceLooks(found) {
  const names = found.evidence.names, few = names.length <= 7, dropped = { ...look(3), colour: "grey" };
  const kept = new Set(found.rows.filter((_, i) => found.share[i][found.epochs.length - 1] >= 0.5));
  const keys = few
    ? names.map((name, m) => [look(m), `${KINDS[found.kind].row} ${name}`])
    : [[look(0), `in play at the end (${kept.size})`], [dropped, "not in play at the end"]];
  return { few, keys, style: (m) => (few ? look(m) : kept.has(names[m]) ? look(0) : dropped) };
}

// The statistic of each class, or the size of each coordinate's estimate, against the threshold.
function evidenceChart(found, minus, width, about) {
  const evidence = found.evidence, kind = KINDS[found.kind], limit = evidence.threshold.median;
  const { few, style, keys } = evidenceLooks(found);
  const shift = (ys) => ys.map((y, j) => (y === null || limit[j] === null ? null : y - (minus ? limit[j] : 0)));
  const shared = { x: found.episode, marks: few };
  const series = evidence.lines.map((line, m) => ({
    ...shared, y: shift(line.median), low: few ? shift(line.low) : null, high: few ? shift(line.high) : null,
    look: style(m), style: few ? "" : "thin",
  }));
  series.push({ ...shared, y: shift(limit), look: THRESHOLD, style: "heavy", marks: false });
  const values = series.flatMap((line) => line.y).filter((y) => y !== null), most = Math.max(...values);
  const usual = Math.max(...limit.filter((y) => y !== null), 1e-12);
  const positive = values.every((y) => y > 0);
  const reading = html("p", { class: "reading", "aria-live": "polite" });
  const onread = (episode) => {
    const j = found.episode.indexOf(episode);
    const each = () => evidence.lines.map((line, m) => `${evidence.names[m]}: ${show(line.median[j])}`).join(", ");
    reading.textContent = j < 0 ? "" : `From episode ${show(episode, 8)}: threshold ${show(limit[j])}${few ? `; ${each()}` : ""}`;
  };
  const chart = lineChart({
    width, series, xLog: true, yLog: positive && most > 30 * Math.min(...values), yLinear: !positive && most > 30 * usual ? usual : null,
    xLabel: "from episode", yLabel: minus ? "minus threshold" : kind.statistic, onread,
    label: `The ${kind.statistic} of each ${kind.row} against the threshold: ${about}. Medians over seeds.`,
  });
  const samples = [...keys, [THRESHOLD, "threshold"]].map(([sample, text]) =>
    html("li", {}, html("span", { class: "key" }, keySample(sample, sample === THRESHOLD ? "heavy" : ""), text)));
  return [chart, reading, html("ul", { class: "keys" }, samples)];
}

function decisionDownloads(found, id, about, label) {
  const kind = KINDS[found.kind], evidence = found.evidence;
  const middle = (line) => ["median", "low", "high"].map((name) => (j) => line[name][j]);
  const rows = (lines, last) => () => lines.flatMap(([name, ...parts]) => found.epochs.map((epoch, j) =>
    [about, epoch, found.episode[j], ...name, ...parts.map((part) => part(j)), ...last(j)]));
  const head = ["of", "epoch", "first_episode"], ends = ["median", "smallest", "largest"], none = () => [];
  const button = (text, what, columns, get) => grow(csvButton(`csv-${what}-${id}`, `${label}, ${what}`, `${what}-${about}`, columns, get),
    {}, text ? [` ${text}`] : []);
  const bound = found.kind === "norm_bound";
  const decided = bound ? rows([[[], ...middle(found)]], none)
    : rows(found.rows.map((row, i) => [[row], (j) => found.share[i][j]]), (j) => [found.reached[j]]);
  const each = () => found.seeds.flatMap((seed, i) => found.epochs.map((epoch, j) =>
    [about, seed, epoch, [found.choices[i][j]].flat().join(" ")]));
  return html("div", { class: "tools" },
    button("", "decisions", [...head, ...(bound ? ends : [kind.row, "share", "seeds"])], decided),
    button("by seed", "seeds", ["of", "seed", "epoch", found.kind], each),
    evidence ? button(`of the ${kind.statistic}`, "evidence", [...head, kind.row, ...ends, "threshold"],
      rows(evidence.lines.map((line, m) => [[evidence.names[m]], ...middle(line)]), (j) => [evidence.threshold.median[j]])) : null);
}

function decisionFigure(data, state, p, one, width, again) {
  const found = one.decisions, id = `${p}-${one.agent}`, kind = KINDS[found.kind], bound = found.kind === "norm_bound";
  const about = `${data.agents[one.agent]} on ${data.problems[p].name}`, label = `${kind.title} over episodes: ${about}`;
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
  if (found.evidence)
    notes.push(`Below: medians over seeds${found.evidence.names.length <= 7 ? ", bands from the smallest to the largest" : ""}.`);
  return html("figure", {}, html("h3", {}, kind.title, ": ", named(data.agents[one.agent])),
    html("p", { class: "note" }, named(data.problems[p].name)),
    bound ? [boundChart(found, width, label, reading), reading] : [
      html("div", { class: "controls" }, chooser(`view-${id}`, "Show", options, view, choose)),
      decisionMap(found, view, width, label)],
    found.evidence ? evidenceChart(found, state.evidence === "minus", width, about) : null,
    html("figcaption", {}, notes.join(" ")), decisionDownloads(found, id, about, label));
}

function decisionsSection(data, state, width, again) {
  const made = data.problems.flatMap((problem, p) => problem.agents.filter((one) => one.decisions).map((one) => [p, one]));
  if (!made.length) return null;
  const each = data.problems.map((_, p) => made.filter(([q]) => q === p)).filter((group) => group.length);
  const groups = each.some((group) => group.length > 1) ? each : [made]; // a row for each problem with several selectors
  const choose = radios("evidence", "Statistics", [["values", "Values"], ["minus", "Minus threshold"]], state.evidence,
    (value) => { state.evidence = value; again(); });
  return html("section", { "aria-labelledby": "decisions" }, html("h2", { id: "decisions" }, "Decisions"),
    html("p", { class: "note" },
      "What each selector had in play from which episode on, and what it held against its threshold."),
    made.some(([, one]) => one.decisions.evidence) ? html("div", { class: "controls" }, choose) : null,
    groups.map((group) => html("div", { class: "panels" },
      group.map(([p, one]) => decisionFigure(data, state, p, one, width(group.length), again)))));
}
