// The page: sections in order, drawn anew when a control or the width changes.

const data = JSON.parse(document.getElementById("data").textContent);
const far = (problem) => { // a winner would lie on the zero line
  const ends = problem.agents.map((one) => one.regret.mean).filter((mean) => mean > 0);
  return ends.length > 1 && Math.max(...ends) > 10 * Math.min(...ends);
};
const state = {
  axes: data.problems.some(far) ? "log" : "linear", band: "interval", baseline: data.baseline, hidden: new Set(), views: {},
};
const main = document.getElementById("main");

function statusSection() {
  const { done, begun, missing, failed, total, failures } = data.status;
  const parts = [`${done} of ${total} cells done`];
  if (begun) parts.push(`${begun} begun`);
  if (missing) parts.push(`${missing} waiting`);
  const lost = failed ? [", ", html("span", { class: "warn" }, `${failed} failed`)] : null;
  const nodes = [html("p", { id: "status", role: "status" }, parts.join(", "), lost, ".")];
  if (done < total) nodes.push(html("progress", { max: total || 1, value: done, "aria-label": "Cells done" }));
  if (failures.length) nodes.push(html("details", { id: "failures" }, html("summary", {}, "Failed cells"),
    table("failed-cells", "Left out of every figure and number below", [["Cell"], ["What", "text"], ["Reason", "text"]],
      failures.map((one) => [one.cell, named(one.who), named(one.reason)]))));
  return nodes;
}

function reproduceSection() {
  const facts = (rows) => rows.map((row) => [row.name, row.values.length === 1 ? row.values[0][0]
    : row.values.map(([text, n]) => `${text} (${n} cells)`).join("; ")]);
  const mixed = data.versions.some((row) => row.values.length > 1);
  const get = () => save(`${fileName(data.name)}.toml`, "application/toml", data.spec);
  return html("section", { "aria-labelledby": "reproduce" }, html("h2", { id: "reproduce" }, "Reproduce"),
    html("p", { class: "note" }, "The spec of this experiment, and what it ran with."),
    mixed ? html("p", { class: "warn" }, "The cells did not all run in the same environment.") : null,
    html("details", { id: "spec" }, html("summary", {}, "Spec"),
      html("pre", { tabindex: 0, "aria-label": "Spec in TOML" }, data.spec),
      html("div", { class: "tools" },
        html("button", { type: "button", id: "get-spec", onclick: get }, "Download spec (TOML)"))),
    html("details", { id: "environment" }, html("summary", {}, "Environment"),
      table("versions", "Versions", [["Name"], ["Version", "text"]], facts(data.versions))));
}

const panelWidth = (panels) => { // inside a figure, as the style sheet lays figures out
  const all = main.clientWidth - 2 * parseFloat(getComputedStyle(main).paddingLeft), rem = 16;
  const across = Math.max(1, Math.min(panels, Math.floor((all + 1.2 * rem) / (27 * rem + 1.2 * rem))));
  return Math.round(Math.max(260, Math.min((all - (across - 1) * 1.2 * rem) / across, 62 * rem) - 1.8 * rem));
};

const SECTIONS = { // each is drawn anew by itself when one of its controls changes
  headline: () => headlineSection(data),
  league: () => leagueSection(data),
  regret: (again) => regretSection(data, state, panelWidth(data.problems.length), again),
  sweeps: () => sweepsSection(data, panelWidth(data.sweeps.length)),
  summary: () => summarySection(data),
  differences: (again) => differencesSection(data, state, again),
  decisions: (again) => decisionsSection(data, state, panelWidth, again),
  reproduce: () => reproduceSection(),
};

// Change the page, and keep the focus, the place and what was folded.
function keeping(change) {
  const focused = document.activeElement && document.activeElement.id, where = window.scrollY;
  const open = new Map([...document.querySelectorAll("details[id]")].map((one) => [one.id, one.open]));
  change();
  for (const [id, was] of open) if (document.getElementById(id)) document.getElementById(id).open = was;
  const again = focused && document.getElementById(focused);
  if (again) again.focus({ preventScroll: true });
  if (window.scrollY !== where) window.scrollTo(window.scrollX, where);
}

function section(name) {
  const made = SECTIONS[name](() => keeping(() => document.getElementById(`part-${name}`).replaceWith(section(name))));
  if (made) made.id = `part-${name}`;
  return made;
}

let drawnWidth = 0;
function draw() {
  drawnWidth = panelWidth(2);
  keeping(() => {
    const names = data.problems.length ? Object.keys(SECTIONS) : ["reproduce"];
    const none = data.problems.length ? [] : [html("p", {}, "No cell has finished yet.")];
    main.replaceChildren(...none, ...names.map(section).filter(Boolean));
    document.getElementById("head").replaceChildren(html("h1", {}, named(data.name)),
      data.description ? html("p", {}, named(data.description)) : "", ...statusSection());
    document.getElementById("contents").replaceChildren(...[...main.querySelectorAll("h2")].map((title) =>
      html("li", {}, html("a", { href: `#${title.id}` }, title.textContent))));
  });
}

draw();
new ResizeObserver(() => { if (Math.abs(panelWidth(2) - drawnWidth) > 8) draw(); }).observe(main);
let closed = [];
window.addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const one of closed) one.open = true;
});
window.addEventListener("afterprint", () => { for (const one of closed) one.open = false; });
