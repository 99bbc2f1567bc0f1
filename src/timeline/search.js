/* Search: words that must all be in an event's name, kind, row or details; "#1499" or 1499: a call
 * of this correlation and its work; ">1ms", "<10us": durations; ">1MiB": bytes. */

let search = null; /* {before: hits before each event, hits: by start, at, text} */
const UNITS = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9 };
const BYTES = { b: 1, kb: 1e3, mb: 1e6, gb: 1e9, kib: 1024, mib: 1048576, gib: 1073741824 };

/* {words, tests}: tests take an event's number. */
function readSearch(text) {
  const tests = [];
  const rest = text.replace(/([<>])\s*([\d.]+)\s*(ns|us|µs|ms|s|[kmg]i?b|b)(?=\s|$)/g, (whole, sign, number, unit) => {
    const limit = Number(number) * (UNITS[unit] || BYTES[unit]);
    const value = UNITS[unit] ? (i) => E.end[i] - E.start[i] : (i) => E.bytes[i];
    tests.push(sign === "<" ? (i) => value(i) < limit : (i) => value(i) > limit);
    return " ";
  }).replace(/(^|\s)#(\d+)(?=\s|$)/g, (whole, before, number) => {
    tests.push((i) => correlationOf(i) === Number(number));
    return " ";
  }).trim().replace(/\s+/g, " ");
  return { text: rest, words: rest.match(/(?:stream|gpu|thread) \d+|\S+/g) || [], tests };
}
const correlationOf = (i) => E.call[i] >= 0 ? E.number[E.call[i]] : rows[E.row[i]].lane.kind === "calls" ? E.number[i] : 0;

/* Of rows and kinds: "stream 7" is not in "Stream 70". */
function inLabel(label, word) {
  const digit = (c) => c >= "0" && c <= "9";
  for (let at = label.indexOf(word); at >= 0; at = label.indexOf(word, at + 1)) {
    const end = at + word.length;
    if (!(digit(word[0]) && digit(label[at - 1] || "")) && !(digit(label[end - 1]) && digit(label[end] || ""))) return true;
  }
  return false;
}
/* Which names, details, kinds and rows have a word: a test of events. */
function testOf(word) {
  const inName = names.map((t) => t.toLowerCase().includes(word)), inDetail = details.map((t) => t.toLowerCase().includes(word));
  const inKind = shapes.map((s) => inLabel(s.name.toLowerCase(), word));
  const inRow = rows.map((r) => inLabel((r.lane.group + " · " + r.lane.label + " · " + r.lane.role).toLowerCase(), word));
  const number = /^\d+$/.test(word) ? Number(word) : -1;
  return (i) => inName[E.name[i]] || inDetail[E.detail[i]] || inKind[E.shape[i]] || inRow[E.row[i]] || (number > 0 && correlationOf(i) === number);
}

function find(text) {
  const want = readSearch(text.trim().toLowerCase()), words = want.words.map(testOf);
  const whole = words.length > 1 ? testOf(want.text) : null;
  if (!words.length && !want.tests.length) {
    search = null;
    $("found").textContent = "";
    $("next").disabled = $("previous").disabled = true;
    root.dataset.found = "";
    redraw(true);
    return;
  }
  const before = new Uint32Array(total + 1);
  const fill = (test) => {
    for (let i = 0; i < total; i++) {
      const hit = rows[E.row[i]].lane.kind !== "engine" && want.tests.every((t) => t(i)) && test(i);
      before[i + 1] = before[i] + (hit ? 1 : 0);
    }
  };
  if (whole) fill(whole); /* as it stands; else its words in any order */
  if (!before[total]) fill((i) => words.every((t) => t(i)));
  const hits = new Uint32Array(before[total]);
  for (let i = 0; i < total; i++) if (before[i + 1] > before[i]) hits[before[i]] = i;
  search = { before, hits: byStart(hits), at: -1, text };
  $("next").disabled = $("previous").disabled = !hits.length;
  $("found").textContent = hits.length ? count(hits.length) + (hits.length === 1 ? " match" : " matches") : "no match";
  root.dataset.found = String(hits.length);
  redraw(true);
}
function byStart(list) {
  return list.sort((a, b) => E.start[a] - E.start[b] || a - b);
}
function step(d) {
  if (!search || !search.hits.length) return;
  const n = search.hits.length;
  if (search.at < 0 && d > 0) { /* from what is visible */
    search.at = search.hits.findIndex((i) => E.start[i] >= view.from);
    if (search.at < 0) search.at = 0;
  } else search.at = (Math.max(search.at, 0) + d + n) % n;
  const i = search.hits[search.at];
  $("found").textContent = count(search.at + 1) + " of " + count(n);
  pick(i, tab === "table");
  reveal(i);
}
