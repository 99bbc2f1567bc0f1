/* The findings, as `millrace analyze` has them, each with a jump to its evidence. */

let finding = null; /* {rule, row}: the evidence that was jumped to last */

/* The event with these times; -1: none (a gap has no event). */
function eventOf(start, end) {
  for (const row of rows) {
    if (row.lane.kind === "engine") continue;
    const last = row.first + row.n;
    for (let i = reach(E.start, start, row.first, last); i < last && E.start[i] <= start; i++) if (E.start[i] === start && E.end[i] === end) return i;
  }
  return -1;
}

/* A search that a jump began ends with the next one. */
let sought = "";
function seek(text) {
  if (text || (search && search.text === sought)) { $("search").value = text; find(text); }
  sought = text;
}

function jump(rule, k) {
  const found = about.findings.find((f) => f.rule === rule), place = found && found.rows[k];
  if (!place) return false;
  finding = { rule, row: k };
  if (place.start === undefined) {
    seek(place.name || "");
    step(1);
  } else {
    seek("");
    const end = place.start + Math.max(1, place.duration || 0), i = eventOf(place.start, place.start + (place.duration || 0));
    range = i < 0 ? { from: place.start, to: end } : null;
    show(place.start - 2 * (end - place.start), end + 2 * (end - place.start));
    pick(i, true);
    if (i >= 0) reveal(i);
  }
  showFindings();
  root.dataset.finding = rule;
  root.dataset.evidence = String(k);
  return true;
}

/* As jump(), by hand: on a narrow page the chart may be out of sight. */
function go(rule, k) {
  jump(rule, k);
  if (INDENT < 24) $("stage").scrollIntoView();
}

const saving = (f) => f.ms === 0 ? "nothing by itself" : f.ms.toFixed(3) + thin + "ms" + (f.step ? " a step" : "") + ", " + f.percent.toFixed(1) + "%";
const jumpText = (f, k) => f.rows[k].start === undefined ? "Find" : "Show";

function evidenceTable(f) {
  const table = element("table", { class: "sums evidence" }, element("tr", {}, element("th", { scope: "col" }, ""), ...f.heads.map((h) => element("th", { scope: "col" }, h))));
  f.rows.forEach((r, k) => {
    const here = finding && finding.rule === f.rule && finding.row === k;
    table.append(element("tr", here ? { class: "here", "aria-current": "true" } : {}, element("td", {}, element("button", { "aria-label": jumpText(f, k) + ": row " + (k + 1) + " of " + f.rule, onclick: () => go(f.rule, k) }, jumpText(f, k))),
      ...r.cells.map((c) => element("td", {}, c))));
  });
  return table;
}

const opened = new Set();
function findingBox(f) {
  const head = element("summary", {}, element("b", {}, f.title), element("span", { class: "saves" }, "saves " + saving(f)));
  if (f.rows.length) head.append(element("button", { class: "jump", "data-rule": f.rule, onclick: (e) => { e.preventDefault(); opened.add(f.rule); go(f.rule, 0); } }, jumpText(f, 0)));
  const box = element("details", { class: "finding" }, head, element("p", {}, f.why), element("p", {}, element("b", {}, "Do: "), f.advice), f.rows.length ? element("div", { class: "wide" }, evidenceTable(f)) : "",
    element("p", { class: "hint" }, f.rule + " · confidence " + f.confidence.toFixed(2)));
  box.open = opened.has(f.rule);
  box.ontoggle = () => { if (box.open) opened.add(f.rule); else opened.delete(f.rule); };
  return box;
}
function showFindings() {
  const of = (verdict) => about.findings.filter((f) => f.verdict === verdict), found = of("found"), untold = of("cannot tell"), fine = of("fine");
  const lines = (title, list) => list.length ? [element("details", { class: "finding" }, element("summary", {}, title + " (" + list.length + ")"), ...list.map((f) => element("p", {}, element("b", {}, f.rule), ": " + f.why)))] : [];
  $("pane-findings").replaceChildren(...(found.length ? found.map(findingBox) : [element("p", { class: "hint" }, "Nothing to fix was found.")]), ...lines("Cannot tell", untold), ...lines("Fine", fine));
}
