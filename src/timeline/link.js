/* The address follows the view, so that a link shows what was seen:
 * #from=NS&to=NS, range=NS-NS, search=TEXT, select=EVENT, finding=RULE&row=N, only=ROW, tab=NAME,
 * theme=dark|light. */

let lastLink = "", linkTimer = 0, initial = null; /* initial: the view before anything was done */

function linkNow() {
  const out = new URLSearchParams(), had = new URLSearchParams(location.hash.slice(1));
  const moved = Math.round(view.from) !== initial.from || Math.round(view.to) !== initial.to;
  if (had.get("theme")) out.set("theme", had.get("theme"));
  if (moved) { out.set("from", Math.round(view.from)); out.set("to", Math.round(view.to)); }
  if (range) out.set("range", Math.round(range.from) + "-" + Math.round(range.to));
  if (search) out.set("search", search.text);
  if (picked >= 0) out.set("select", picked);
  if (finding) { out.set("finding", finding.rule); out.set("row", finding.row); }
  if (only >= 0) out.set("only", only);
  if (tab !== initial.tab) out.set("tab", tab);
  return out.toString();
}
function remember() {
  const link = linkNow();
  if (!initial || link === lastLink) return;
  lastLink = link;
  try { history.replaceState(null, "", link ? "#" + link : location.pathname + location.search); } catch { /* a browser that allows it so often only */ }
}
/* Not for each frame of a move. */
function rememberSoon() {
  clearTimeout(linkTimer);
  if (initial) linkTimer = setTimeout(remember, 200);
}

/* Goes where the address says. What it does not say stays. */
function openAt() {
  const at = new URLSearchParams(location.hash.slice(1)), number = (key) => Number(at.get(key));
  if (at.has("search")) { $("search").value = at.get("search"); find(at.get("search")); }
  if (at.has("only") && lanes[number("only")]) setOnly(number("only"));
  if (at.has("finding")) { opened.add(at.get("finding")); jump(at.get("finding"), number("row")); }
  if (at.has("select") && number("select") < total) pick(number("select"), true);
  if (at.has("from") && at.has("to")) show(number("from"), number("to"));
  if (at.has("range")) { const [from, to] = at.get("range").split("-").map(Number); if (to > from) range = { from, to }; }
  if (at.has("next")) step(1);
  setTab(panels[at.get("tab")] ? at.get("tab") : at.has("finding") ? "findings" : picked >= 0 ? "details" : tab);
}
addEventListener("hashchange", () => {
  if (!initial || location.hash.slice(1) === lastLink) return;
  setTheme();
  openAt();
  redraw(true);
});
