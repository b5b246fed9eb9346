// The league table of an arena: figures of published and of tuned constants, and who played when.

const share = (value) => value === null ? "–" : `${show(100 * value, 3)} %`;

function leagueTable(league, p) {
  const tuned = league.tuned_on.length, regrets = league.rows.map((row) => row.published.regret.mean);
  const form = even(regrets), least = Math.min(...league.rows.filter((row) => !row.reference).map((row) => row.published.regret.mean));
  const columns = [["Rival"], ["Guarantee", "text extra"], ["Given", "text extra"], [tuned ? "Regret, published" : "Regret"], ["Worst seed", "extra"],
    ["Last tenth, an episode", "extra"], ["Right class", "extra"], ["Pessimistic plans", "extra"], ["us an episode", "extra"]];
  if (tuned) columns.push([`Regret, tuned on seeds ${league.tuned_on.join(", ")}`]);
  const seeds = league.seeds.length > 12 ? `${league.seeds.length} seeds` : `seeds ${league.seeds.join(", ")}`;
  const rows = league.rows.map((row) => {
    const { published, tuned: best } = row, told = withEnds(published.regret.mean, published.regret.interval, form);
    const line = [row.reference ? html("em", {}, named(row.name)) : named(row.name), published.guarantee, row.given,
      !row.reference && published.regret.mean === least ? html("span", { class: "best" }, told) : told, form(published.worst),
      show(published.tail, 2), share(published.right), share(published.pessimistic), show(published.us, 3)];
    if (tuned) line.push(best ? [withEnds(best.regret.mean, best.regret.interval, form), html("span", { class: "ends" }, best.constants)] : "–");
    return line;
  });
  return table(`league-${p}`, [named(league.problem), `: ${show(league.episodes, 9)} episodes, ${seeds}`], columns, rows);
}

// Shares of the bases as columns over bins of episodes, on a logarithmic axis, one above the other.
function stacked(plays, names, width, label) {
  const { edges, shares } = plays, height = 190, left = 44, right = width - 10, top = 8, bottom = height - 38;
  const X = scale(true, edges[0], edges[edges.length - 1], left, right), Y = (v) => bottom - v * (bottom - top);
  const frame = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "chart" });
  const heights = edges.map(() => 0);
  shares.forEach((line, i) => line.forEach((value, j) => {
    if (!value) return;
    frame.append(svg("rect", { class: `class k${i % 7}`, x: X(edges[j]), width: X(edges[j + 1]) - X(edges[j]),
      y: Y(heights[j] + value), height: value * (bottom - top) },
      svg("title", {}, `${names[i]}, episodes ${edges[j]} to ${edges[j + 1] - 1}: ${share(value)}`)));
    heights[j] += value;
  }));
  for (const v of [0, 0.5, 1]) frame.append(
    svg("text", { x: left - 6, y: Y(v), "text-anchor": "end", "dominant-baseline": "central" }, `${100 * v} %`));
  const ticks = logTicks(edges[0], edges[edges.length - 1], (right - left) / 60), labels = tickLabels(ticks, true);
  ticks.forEach((v, i) => frame.append(svg("text", { x: X(v), y: bottom + 15, "text-anchor": "middle" }, labels[i])));
  frame.append(svg("text", { x: (left + right) / 2, y: height - 5, "text-anchor": "middle" }, "episode"));
  return frame;
}

function playsFigures(data, league, width) {
  const drawn = league.rows.flatMap((row) => [row.published, ...(row.tuned && row.tuned.agent !== row.published.agent ? [row.tuned] : [])]);
  return drawn.filter((one) => one.plays).map((one) => html("figure", {}, html("h3", {}, named(data.agents[one.agent])),
    html("p", { class: "note" }, named(league.problem)),
    stacked(one.plays, one.bases, width, `Share of plays of each base over episodes, ${data.agents[one.agent]} on ${league.problem}`),
    html("ul", { class: "keys" }, one.bases.map((name, i) => html("li", {}, html("span", { class: "key" },
      svg("svg", { class: "swatch", viewBox: "0 0 14 14", "aria-hidden": "true" }, svg("rect", { class: `class k${i % 7}`, width: 14, height: 14 })), named(name)))))));
}

function leagueSection(data, width) {
  if (!data.league.length) return null;
  const figures = data.league.flatMap((league) => playsFigures(data, league, width));
  const rows = () => data.league.flatMap((league) => league.rows.flatMap((row) =>
    [["published", row.published], ["tuned", row.tuned]].filter(([, one]) => one).map(([kind, one]) => [league.problem, row.name, kind,
      data.agents[one.agent], one.guarantee, row.given, one.regret.mean, ...(one.regret.interval || ["", ""]), one.worst, one.tail,
      one.right, one.pessimistic, one.us])));
  return html("section", { "aria-labelledby": "league" }, html("h2", { id: "league" }, "League"),
    html("p", { class: "note" }, "Those in italics know or keep to a class. A guarantee is that of the published constants; where a scale is not 1 there is none. " +
      "Tuned: the constants with the least mean regret on the tuning seeds, which are not shown. Right class: the share of episodes played by it."),
    tables(data.league.map(leagueTable)),
    html("div", { class: "controls tools" }, csvButton("csv-league", "the league", "league", ["problem", "rival", "constants", "agent",
      "guarantee", "given", "regret", "low", "high", "worst", "tail", "right", "pessimistic", "us"], rows)),
    figures.length ? html("h3", {}, "Plays of each base") : null, html("div", { class: "panels" }, figures));
}

// Variants that are in no row: their curves can be shown, but are not at first.
function unlisted(data) {
  const listed = data.league.flatMap((league) => league.rows.flatMap((row) => [row.published, row.tuned].filter(Boolean).map((one) => one.agent)));
  return data.league.length ? data.agents.map((_, i) => i).filter((i) => !listed.includes(i)) : [];
}
