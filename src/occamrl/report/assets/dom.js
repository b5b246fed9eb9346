// Building blocks. Every text from the data becomes a text node or an attribute's value, never markup.

const SVG = "http://www.w3.org/2000/svg";

function grow(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}
const html = (tag, attributes, ...children) => grow(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => grow(document.createElementNS(SVG, tag), attributes, children);
const named = (text) => html("bdi", {}, text); // a name's own direction does not turn its surroundings

// ------------------------------------------------------------------------------------------------------------ numbers
function show(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-3)) return value.toExponential(Math.max(digits - 2, 1)).replace("e+", "e");
  const decimals = Number.isInteger(value) ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(size || 1)));
  return value.toLocaleString("en", { maximumFractionDigits: Math.min(decimals, 6) });
}
const showEnds = (ends) => (ends ? `[${show(ends[0])}, ${show(ends[1])}]` : null);
// Labels of one axis share a unit; on a logarithmic axis each tick has its own, and its neighbours are far away.
function tickLabels(values, log) {
  const most = Math.max(...values.map(Math.abs)), digits = log ? 3 : 6;
  return values.map((value) => {
    const size = log ? Math.abs(value) : most;
    if (value === 0) return "0";
    if (size >= 1e9 || Math.abs(value) < 1e-3) return (+value.toPrecision(3)).toExponential().replace("e+", "e");
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(digits)}M`;
    if (size >= (log ? 1e3 : 1e4)) return `${+(value / 1e3).toPrecision(digits)}k`;
    return (+value.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 6 });
  });
}

// ---------------------------------------------------------------------------------------------------------- downloads
function csvField(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  let text = String(value);
  if (/^[=+\-@\t\r\n]/.test(text)) text = `'${text}`; // a spreadsheet would take it for a formula
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
const csv = (columns, rows) => [columns, ...rows].map((row) => row.map(csvField).join(",")).join("\r\n") + "\r\n";
const fileName = (text) => text.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|-+$/g, "").slice(0, 80) || "data";

function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  html("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
function csvButton(id, about, name, columns, rows) {
  const press = () => save(`${fileName(name)}.csv`, "text/csv;charset=utf-8", csv(columns, rows()));
  return html("button", { type: "button", id, onclick: press, "aria-label": `Download as CSV: ${about}` }, "CSV");
}

// ----------------------------------------------------------------------------------------------------------- controls
function radios(id, legend, options, value, change) {
  const one = ([key, text]) =>
    html("label", { class: "segment" },
      html("input", {
        type: "radio", name: id, id: `${id}-${key}`, value: key, checked: key === value, onchange: () => change(key),
      }),
      html("span", {}, text));
  return html("fieldset", { id }, html("legend", {}, legend), options.map(one));
}
function chooser(id, label, options, value, change) {
  const one = ([key, text]) => html("option", { value: key, selected: String(key) === String(value) }, text);
  const select = html("select", { id, onchange: () => change(select.value) }, options.map(one));
  return html("label", { class: "pick" }, label, select);
}
function table(id, caption, columns, rows, foot = null) {
  const head = html("tr", {}, columns.map(([text, kind]) => html("th", { scope: "col", class: kind }, text)));
  const line = (row) =>
    html("tr", {}, row.map((cell, i) =>
      i === 0 ? html("th", { scope: "row" }, cell) : html("td", { class: columns[i][1] }, cell)));
  const body = html("table", { id }, html("caption", {}, caption), html("thead", {}, head),
    html("tbody", {}, rows.map(line)), foot ? html("tfoot", {}, line(foot)) : null);
  return html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table, scrolls sideways" }, body);
}
// Numbers of one column have the same number of decimals: three significant digits of the one in the middle, and one
// decimal more where the smallest would have only one digit. From 10,000 on decimals say nothing and are left out.
function even(values) {
  const sizes = values.filter((v) => v !== null && v !== 0).map(Math.abs).sort((a, b) => a - b);
  const middle = sizes[Math.floor(sizes.length / 2)] || 1;
  if (middle < 1e-3 || sizes[sizes.length - 1] >= 1e7) return show;
  const usual = Math.max(0, 2 - Math.floor(Math.log10(middle))), small = 1 - Math.floor(Math.log10(sizes[0] || 1));
  const decimals = Math.min(6, usual + (small > usual ? 1 : 0));
  const shown = (v, n) => v.toLocaleString("en", { minimumFractionDigits: n, maximumFractionDigits: n });
  return (v) => v === null ? "–" : shown(v, Math.abs(v) < 1e4 ? decimals : 0);
}
const tables = (all) => html("div", { class: "tables" }, all);
const withEnds = (value, ends, form = show) =>
  [form(value), ends ? html("span", { class: "ends" }, `[${form(ends[0])}, ${form(ends[1])}]`) : null];
