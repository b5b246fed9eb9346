// What was in play over episodes and seeds, and the league.

const KINDS = {
  class: { title: "Class in play", row: "class", hint: "Numbers in squares: percent of seeds." },
  features: { title: "Features in play", row: "feature", hint: "Numbers in squares: percent of seeds." },
  base: { title: "Base that plays", row: "base", hint: "Numbers in squares: percent of seeds." },
  norm: { title: "Norm bound", row: "norm bound", hint: "Thick: median over seeds. Thin: single seeds." },
};

// Squares over episodes. options: width, label, rows (names), episodes, rowLabel, cell(i, j) -> { share, text, title } or null.
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
      const { share, text } = found;
      frame.append(svg("rect", {
        x, y, width: wide, height: high, class: share > 0 ? "square" : "empty",
        "fill-opacity": share > 0 ? (0.12 + 0.88 * share).toFixed(3) : null,
      }, svg("title", {}, found.title)));
      if (share > 0 && text && wide >= 7.5 * text.length + 3 && high >= 12) frame.append(
        svg("text", { x: x + wide / 2, y: y + high / 2, class: `inside ${share > 0.5 ? "on" : "off"}` }, text));
    });
  });
  begins.forEach((text, j) => {
    if (j % everyColumn === 0) frame.append(
      svg("text", { x: left + (j + 0.5) * wide, y: bottom + 15, "text-anchor": "middle" }, text));
  });
  frame.append(
    svg("text", { x: (left + right) / 2, y: height - 5, "text-anchor": "middle" }, "episode"),
    svg("text", { transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, options.rowLabel));
  return frame;
}

function decisionMap(found, view, width, label) {
  const row = KINDS[found.kind].row, at = (j) => `episode ${show(found.episode[j], 8)}`;
  const one = view === "share" ? null : found.choices[Number(view.slice(5))];
  return heatMap({ width, episodes: found.episode, rows: found.labels, rowLabel: row, label, cell: (i, j) => {
    if (one === null) {
      const share = found.share[i][j], title = `${row} ${found.labels[i]}, ${at(j)}: ${show(100 * share, 3)} % of ${found.reached[j]} seeds`;
      return { share, text: String(Math.round(100 * share)), title };
    }
    if (one[j] === null) return null;
    const on = [one[j]].flat().includes(found.rows[i]);
    return { share: on ? 1 : 0, title: `${row} ${found.labels[i]}, ${at(j)}: ${on ? "" : "not "}in play` };
  } });
}

function boundChart(found, width, label, reading) {
  const shared = { x: found.episode, look: look(0), plain: true };
  const each = found.choices.map((y) => ({ ...shared, y, style: "thin", marks: false }));
  const middle = { ...shared, y: found.median, low: found.low, high: found.high, style: "heavy", marks: false };
  const onread = (episode) => {
    const j = found.episode.indexOf(episode);
    reading.textContent = j < 0 ? ""
      : `Episode ${show(episode, 8)}: median ${show(found.median[j])}, from ${show(found.low[j])} to ${show(found.high[j])}`;
  };
  return lineChart({ width, label, xLog: true, xLabel: "episode", yLabel: "norm bound", onread, series: [...each, middle] });
}

function decisionFigure(data, state, p, one, width, again) {
  const found = one.decisions, id = `${p}-${one.agent}`, kind = KINDS[found.kind], bound = found.kind === "norm";
  const about = `${data.agents[one.agent]} on ${data.problems[p].name}`, label = `${kind.title} over episodes: ${about}`;
  const options = [["share", "Share of seeds"], ...found.seeds.map((seed, i) => [`seed-${i}`, `Seed ${seed}`])];
  const view = state.views[id] || "share";
  const reading = html("p", { class: "reading", "aria-live": "polite" });
  const notes = [kind.hint];
  if (found.labels && found.labels.some((each) => each.endsWith(" *"))) notes.push("A star marks what is true.");
  if (found.hidden) notes.push(`${found.hidden} rows that were in play least are not drawn.`);
  if (one.seeds.length > found.seeds.length) notes.push(`Single seeds: the first ${found.seeds.length} of ${one.seeds.length}.`);
  const rows = () => found.seeds.flatMap((seed, i) => found.episode.map((episode, j) => [about, seed, episode, [found.choices[i][j]].flat().join(" ")]));
  return html("figure", {}, html("h3", {}, kind.title, ": ", named(data.agents[one.agent])),
    html("p", { class: "note" }, named(data.problems[p].name)),
    bound ? [boundChart(found, width, label, reading), reading] : [
      html("div", { class: "controls" }, chooser(`view-${id}`, "Show", options, view, (value) => { state.views[id] = value; again(); })),
      decisionMap(found, view, width, label)],
    html("figcaption", {}, notes.join(" ")),
    html("div", { class: "tools" }, csvButton(`csv-decisions-${id}`, label, `decisions-${about}`, ["of", "seed", "episode", kind.row], rows)));
}

function decisionsSection(data, state, width, again) {
  const made = data.problems.flatMap((problem, p) => problem.agents.filter((one) => one.decisions).map((one) => [p, one]));
  if (!made.length) return null;
  return html("section", { "aria-labelledby": "decisions" }, html("h2", { id: "decisions" }, "Decisions"),
    html("p", { class: "note" }, "What was in play at which episode."),
    html("div", { class: "panels" }, made.map(([p, one]) => decisionFigure(data, state, p, one, width(made.length), again))));
}

function leagueSection(data) {
  if (!data.league.length) return null;
  const names = Object.keys(data.league[0]).filter((name) => name !== "problem"
    && data.league.some((row) => row[name] !== null && row[name] !== ""));
  const columns = names.map((name, i) => [name[0].toUpperCase() + name.slice(1), ["guarantee", "given beforehand", "tuned"].includes(name) ? "text extra" : i > 3 ? "extra" : ""]);
  const problems = [...new Set(data.league.map((row) => row.problem))];
  const cell = (value) => (typeof value === "number" ? show(value) : value === null ? "–" : named(value));
  return html("section", { "aria-labelledby": "league" }, html("h2", { id: "league" }, "League"),
    html("p", { class: "note" }, "A guarantee is that of the published constants. Tuned: the constants with the least mean regret on the tuning seeds, which are not shown."),
    tables(problems.map((problem, p) => table(`league-${p}`, named(problem), columns,
      data.league.filter((row) => row.problem === problem).map((row) => names.map((name) => cell(row[name])))))),
    html("div", { class: "controls tools" }, csvButton("csv-league", "the league", "league", ["problem", ...names],
      () => data.league.map((row) => [row.problem, ...names.map((name) => row[name])]))));
}
