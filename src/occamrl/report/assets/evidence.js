// The statistic behind a decision against its threshold: T of each class, or the size of each coordinate's estimate.

const THRESHOLD = { colour: "k6", dash: "12 4", mark: null };

// Up to seven lines have a look each; more are told apart by whether they are in play at the end.
function evidenceLooks(found) {
  const names = found.evidence.names, few = names.length <= 7, dropped = { ...look(3), colour: "grey" };
  const kept = new Set(found.rows.filter((_, i) => found.share[i][found.epochs.length - 1] >= 0.5));
  const keys = few
    ? names.map((name, m) => [look(m), `${KINDS[found.kind].row} ${name}`])
    : [[look(0), `in play at the end (${kept.size})`], [dropped, "not in play at the end"]];
  return { few, keys, style: (m) => (few ? look(m) : kept.has(names[m]) ? look(0) : dropped) };
}

function evidenceFigure(data, state, p, one, width) {
  const found = one.decisions, evidence = found.evidence, kind = KINDS[found.kind], limit = evidence.threshold.median;
  const about = `${data.agents[one.agent]} on ${data.problems[p].name}`, minus = state.evidence === "minus";
  const { few, style, keys } = evidenceLooks(found);
  const shift = (ys) => ys.map((y, j) => (y === null || limit[j] === null ? null : y - (minus ? limit[j] : 0)));
  const series = evidence.lines.map((line, m) => ({
    x: found.epochs, y: shift(line.median), low: few ? shift(line.low) : null, high: few ? shift(line.high) : null,
    look: style(m), marks: few, style: few ? "" : "thin",
  }));
  series.push({ x: found.epochs, y: shift(limit), look: THRESHOLD, style: "heavy", marks: false });
  const values = series.flatMap((line) => line.y).filter((y) => y !== null);
  const wide = values.every((y) => y > 0) && Math.max(...values) > 30 * Math.min(...values);
  const reading = html("p", { class: "reading", "aria-live": "polite" });
  const onread = (epoch) => {
    const j = found.epochs.indexOf(epoch);
    const each = () => evidence.lines.map((line, m) => `${evidence.names[m]}: ${show(line.median[j])}`).join(", ");
    reading.textContent = j < 0 ? "" : `Epoch ${epoch}: threshold ${show(limit[j])}${few ? `; ${each()}` : ""}`;
  };
  const chart = lineChart({
    width, series, yLog: !minus && wide, whole: true, xLabel: "epoch", yLabel: minus ? "minus threshold" : kind.axis,
    onread, label: `The ${kind.statistic} against its threshold over epochs: ${about}. Medians over seeds.`,
  });
  const samples = [...keys, [THRESHOLD, "threshold"]].map(([sample, text]) =>
    html("li", {}, html("span", { class: "key" }, keySample(sample, sample === THRESHOLD ? "heavy" : ""), text)));
  const rows = () => evidence.lines.flatMap((line, m) => found.epochs.map((epoch, j) =>
    [about, epoch, evidence.names[m], line.median[j], line.low[j], line.high[j], limit[j]]));
  const columns = ["of", "epoch", kind.row, "median", "smallest", "largest", "threshold"];
  const title = found.kind === "chosen" ? "Statistic and threshold: " : "Estimate and threshold: ";
  return html("figure", {}, html("h3", {}, title, named(data.agents[one.agent])),
    html("p", { class: "note" }, named(data.problems[p].name)), chart, reading, html("ul", { class: "keys" }, samples),
    html("figcaption", {}, few ? "Medians over seeds, bands from the smallest to the largest seed." : "Medians over seeds."),
    html("div", { class: "tools" }, csvButton(`csv-evidence-${p}-${one.agent}`,
      `${kind.statistic} against its threshold, ${about}`, `evidence-${about}`, columns, rows)));
}
