// Squares over epochs: the share of seeds for each class or coordinate, or the class of each seed.

// options: width, label, rows (names), columns (epochs), episodes (in which they begin), rowLabel, cell(i, j) -> {share | kind, text, title} or null.
function heatMap(options) {
  const { width, rows, columns } = options;
  const left = 20 + 7.5 * Math.max(2, ...rows.map((row) => String(row).length)) + 8, top = 6, right = width - 6;
  const wide = (right - left) / columns.length, high = Math.max(9, Math.min(24, 420 / rows.length));
  const bottom = top + high * rows.length, height = bottom + 40;
  const frame = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.label });
  const begins = tickLabels(options.episodes, true);
  const everyRow = Math.ceil(13 / high), everyColumn = Math.ceil((12 + 7 * Math.max(...begins.map((t) => t.length))) / wide);
  rows.forEach((row, i) => {
    const y = top + i * high;
    if (i % everyRow === 0) frame.append(
      svg("text", { x: left - 6, y: y + high / 2, "text-anchor": "end", "dominant-baseline": "central" }, row));
    columns.forEach((column, j) => {
      const found = options.cell(i, j), x = left + j * wide, place = { x, y, width: wide, height: high };
      if (found === null) return;
      const filled = found.kind === undefined ? found.share > 0 : true;
      const square = svg("rect", {
        ...place, class: filled ? (found.kind === undefined ? "square" : `class k${found.kind % 7}`) : "empty",
        "fill-opacity": found.kind === undefined && filled ? (0.12 + 0.88 * found.share).toFixed(3) : null,
      }, svg("title", {}, found.title));
      frame.append(square);
      if (filled && found.text && wide >= 7.5 * found.text.length + 3 && high >= 12) frame.append(svg("text", {
        x: x + wide / 2, y: y + high / 2, class: `inside ${found.kind !== undefined || found.share > 0.5 ? "on" : "off"}`,
      }, found.text));
    });
  });
  columns.forEach((column, j) => {
    if (j % everyColumn === 0) frame.append(
      svg("text", { x: left + (j + 0.5) * wide, y: bottom + 15, "text-anchor": "middle" }, begins[j]));
  });
  frame.append(
    svg("text", { x: (left + right) / 2, y: height - 5, "text-anchor": "middle" }, "from episode"),
    svg("text", { transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, options.rowLabel));
  return frame;
}
