// Line charts: scales, axes, lines with bands and markers, and a cross-hair for pointer and arrow keys.

const DASHES = ["", "8 4", "9 3 2 3", "2 3", "9 2 2 2 2 2", "14 5", "4 2"];
const MARKS = [
  (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
  (r) => `M${-r},${-r}H${r}V${r}H${-r}Z`,
  (r) => `M0,${-1.25 * r}L${1.15 * r},${r}H${-1.15 * r}Z`,
  (r) => `M0,${-1.4 * r}L${1.4 * r},0L0,${1.4 * r}L${-1.4 * r},0Z`,
  (r) => `M0,${1.25 * r}L${1.15 * r},${-r}H${-1.15 * r}Z`,
  (r, s = 0.8 * r) => `M${-r / 2},${-1.3 * r}h${r}v${s}h${s}v${r}h${-s}v${s}h${-r}v${-s}h${-s}v${-r}h${s}Z`,
  (r, s = 0.4 * r, t = 1.2 * r) => `M${-t},0L${-s},${-t}L${s},${-t}L${t},0L${s},${t}L${-s},${t}Z`,
];
// Line i has colour i mod 7; after seven, dashes and marks move on, so that no two of 49 look alike.
function look(i) {
  const turn = (i + Math.floor(i / 7)) % 7;
  return { colour: `k${i % 7}`, dash: DASHES[turn], mark: MARKS[turn] };
}

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999) || 10 * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1)
    found.push(+(i * step).toPrecision(12));
  return found;
}
function logTicks(low, high, count) {
  const first = Math.floor(Math.log10(low) + 1e-9), last = Math.ceil(Math.log10(high) - 1e-9), decades = last - first;
  const every = Math.max(1, Math.ceil(decades / count));
  const factors = decades <= 1 ? [1, 2, 3, 5] : decades <= 3 && count >= 2 * decades ? [1, 3] : [1];
  const found = [];
  for (let e = first; e <= last; e += every) for (const f of factors) found.push(f * 10 ** e);
  return found.filter((v) => v >= low * 0.999 && v <= high * 1.001);
}
// log: true, or the half-width of a linear part around zero, logarithmic to both sides of it.
function symmetricTicks(low, high, linear, count) {
  const reach = Math.max(-low, high), positive = logTicks(Math.min(linear, reach), reach, count / (low < -linear ? 2 : 1));
  return [...positive.map((v) => -v).reverse(), 0, ...positive].filter((v) => v >= low && v <= high);
}
function scale(log, low, high, from, to) {
  const f = !log ? (v) => v : log === true ? Math.log : (v) => Math.sign(v) * Math.log1p(Math.abs(v) / log);
  const a = f(low), b = f(high) === a ? a + 1 : f(high);
  return (v) => from + ((f(v) - a) / (b - a)) * (to - from);
}

// Points with a number, split where one is missing (or cannot be drawn on a logarithmic axis).
function pieces(xs, ys, usable) {
  const found = [];
  let piece = [];
  xs.forEach((x, i) => {
    if (usable(x, ys[i])) piece.push([x, ys[i]]);
    else if (piece.length) { found.push(piece); piece = []; }
  });
  if (piece.length) found.push(piece);
  return found;
}

// options: width, label, xLabel, yLabel, xLog, yLog, yLinear (logarithmic beyond it, to both sides), xTicks, series, onread(x | null).
// A series: x, y, low, high, look, style ("thin", "heavy"), marks (false: none), plain (no dash).
function lineChart(options) {
  const { width, series, xLog, yLog } = options;
  const height = Math.round(Math.min(Math.max(width * 0.62, 230), 400));
  const drawn = (x, y) => y !== null && Number.isFinite(y) && (!xLog || x > 0) && (!yLog || y > 0);
  const all = { x: [], y: [] };
  for (const one of series) one.x.forEach((x, i) => {
    for (const ys of [one.y, one.low, one.high]) if (ys && drawn(x, ys[i])) { all.x.push(x); all.y.push(ys[i]); }
  });
  const frame = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": options.label, class: "chart",
  });
  if (!all.x.length) {
    const why = yLog ? "Nothing to draw: no positive value." : "No data yet.";
    frame.append(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, why));
    return frame;
  }
  const least = (v) => v.reduce((a, b) => Math.min(a, b)), most = (v) => v.reduce((a, b) => Math.max(a, b));
  let [x0, x1, y0, y1] = [least(all.x), most(all.x), least(all.y), most(all.y)];
  if (options.yLinear) { y1 *= 1.3; y0 = Math.min(1.3 * y0, 0); } else if (yLog) { y0 = Math.max(y0, y1 / 1e9); if (y1 / y0 < 1.05) { y0 /= 2; y1 *= 2; } } else {
    if (y0 >= 0 && (options.zero || y0 < 0.5 * y1)) y0 = 0;
    const room = (y1 - y0 || Math.abs(y1) || 1) * 0.05;
    y1 += room; if (y0 !== 0) y0 -= room;
  }
  if (!xLog && x0 < x1 * 0.05) x0 = 0;
  const yLinear = options.yLinear, yTicks = yLinear ? symmetricTicks(y0, y1, yLinear, height / 42)
    : yLog ? logTicks(y0, y1, height / 42) : ticks(y0, y1, height / 55);
  const yLabels = tickLabels(yTicks, yLog || yLinear);
  const left = 28 + 7 * Math.max(4, ...yLabels.map((text) => text.length));
  const right = width - 14, top = 10, bottom = height - 42;
  const X = scale(xLog, x0, x1, left, right), Y = scale(yLinear || yLog, y0, y1, bottom, top);
  const xTicks = options.xTicks || (xLog ? logTicks(x0, x1, (right - left) / 60) : ticks(x0, x1, (right - left) / 75));
  const xLabels = tickLabels(xTicks, xLog);
  yTicks.forEach((v, i) => frame.append(
    svg("line", { class: "grid", x1: left, x2: right, y1: Y(v), y2: Y(v) }),
    svg("text", { x: left - 6, y: Y(v), "text-anchor": "end", "dominant-baseline": "central" }, yLabels[i])));
  xTicks.forEach((v, i) => frame.append(
    svg("line", { class: "grid", x1: X(v), x2: X(v), y1: top, y2: bottom }),
    svg("text", { x: X(v), y: bottom + 16, "text-anchor": X(v) > right - 12 ? "end" : "middle" }, xLabels[i])));
  frame.append(
    svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
    svg("text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, options.xLabel),
    svg("text", { transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" },
      options.yLabel));

  const point = ([x, y]) => `${X(x).toFixed(1)},${Math.min(Math.max(Y(y), top - 2), bottom + 2).toFixed(1)}`;
  for (const one of series.filter((s) => s.low && s.high)) {
    const floor = (ys) => ys.map((v) => (v !== null && yLog && v <= 0 ? y0 : v));
    const ends = pieces(one.x, floor(one.high), drawn), starts = pieces(one.x, floor(one.low), drawn);
    ends.forEach((piece, i) => {
      if (starts[i] && starts[i].length === piece.length && piece.length > 1) frame.append(svg("path", {
        class: `band ${one.look.colour}`,
        d: `M${piece.map(point).join("L")}L${starts[i].slice().reverse().map(point).join("L")}Z`,
      }));
    });
  }
  series.forEach((one, order) => {
    const parts = pieces(one.x, one.y, drawn);
    const d = parts.map((piece) => `M${piece.map(point).join("L")}`).join("");
    if (d) frame.append(svg("path", {
      class: `line ${one.look.colour} ${one.style || ""}`, d,
      "stroke-dasharray": one.plain ? null : one.look.dash || null,
    }));
    if (one.marks === false) return;
    const points = parts.flat();
    let next = left + 18 + (order % 5) * 9; // staggered, so that marks of close lines do not hide one another
    points.forEach(([x, y], i) => {
      const single = points.length <= 14, here = X(x);
      if (!single && (here < next || i === 0)) return;
      next = here + Math.max(70, (right - left) / 7);
      const [px, py] = point([x, y]).split(",");
      frame.append(svg("path", {
        class: `mark ${one.look.colour}`, d: one.look.mark(3.4), transform: `translate(${px} ${py})`,
      }));
    });
  });
  if (options.onread) crosshair(frame, options, X, { left, right, top, bottom });
  return frame;
}

function crosshair(frame, options, X, box) {
  const xs = [...new Set(options.series.flatMap((one) => one.x))].sort((a, b) => a - b);
  const cross = svg("line", { class: "cross", y1: box.top, y2: box.bottom, visibility: "hidden" });
  frame.append(cross);
  let at = null;
  const move = (i) => {
    at = i === null ? null : Math.min(Math.max(i, 0), xs.length - 1);
    cross.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at !== null) { cross.setAttribute("x1", X(xs[at])); cross.setAttribute("x2", X(xs[at])); }
    options.onread(at === null ? null : xs[at]);
  };
  frame.addEventListener("pointermove", (event) => {
    const area = frame.getBoundingClientRect();
    const here = ((event.clientX - area.left) / area.width) * options.width;
    let best = 0;
    xs.forEach((x, i) => { if (Math.abs(X(x) - here) < Math.abs(X(xs[best]) - here)) best = i; });
    move(best);
  });
  frame.addEventListener("pointerleave", () => move(null));
  frame.addEventListener("blur", () => move(null));
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    if (event.key === "Escape") move(null);
    else if (event.key === "Home") move(0);
    else if (event.key === "End") move(xs.length - 1);
    else if (step) move(at === null ? (step > 0 ? 0 : xs.length - 1) : at + step);
    else return;
    event.preventDefault();
  });
}

function keySample(style, kind = "") {
  return svg("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" },
    svg("path", { class: `line ${style.colour} ${kind}`, d: "M1,7H33", "stroke-dasharray": style.dash || null }),
    style.mark && svg("path", { class: `mark ${style.colour}`, d: style.mark(3.6), transform: "translate(17 7)" }));
}
