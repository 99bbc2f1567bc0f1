/* The page of `millrace timeline`. Times are ns; events are numbers into the columns; a row's events never overlap. */
const began = performance.now();
const $ = (id) => document.getElementById(id);
const root = document.documentElement;
window.addEventListener("error", (e) => { root.dataset.error = String(e.message); });
window.addEventListener("unhandledrejection", (e) => { root.dataset.error = String(e.reason); });

/* ---- data ---- */

async function inflate(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/* Calls take(number, index) for each LEB128 number. */
function numbers(bytes, take) {
  let n = 0;
  for (let i = 0; i < bytes.length; n++) {
    let x = 0, scale = 1, b;
    do { b = bytes[i++]; x += (b & 127) * scale; scale *= 128; } while (b & 128);
    take(x, n);
  }
  return n;
}

async function column(id) {
  const element = $("data-" + id), text = element.textContent;
  element.remove();
  return inflate(text);
}

const about = JSON.parse($("about").textContent);
$("about").remove();
const { lanes, names, details, shapes } = about;
const rows = [];                       /* {lane, level, first, n}: of all events, in order */
let total = 0;
for (const lane of lanes) {
  lane.rows = [];
  lane.levels.forEach((n, level) => { const row = { lane, level, first: total, n }; rows.push(row); lane.rows.push(row); total += n; });
}
const E = { start: new Float64Array(total), end: new Float64Array(total), name: new Uint32Array(total), shape: new Uint8Array(total),
  bytes: new Float64Array(total), detail: new Uint32Array(total), call: new Int32Array(total), number: new Uint32Array(total),
  result: new Uint32Array(total), busy: new Float64Array(total + 1), row: new Uint32Array(total) };
let madeFirst, made;                   /* operations of each call: made[madeFirst[i] .. madeFirst[i + 1]) */
const counters = about.counters;

async function load() {
  const [start, duration, name, shape, bytes, detail, link, number, result] =
    await Promise.all(["start", "duration", "name", "shape", "bytes", "detail", "link", "number", "result"].map(column));
  let row = 0, last = 0;
  numbers(start, (x, i) => {
    if (row < rows.length && i === rows[row].first) { last = 0; row++; }
    E.start[i] = last += x;
    E.row[i] = row - 1;
  });
  numbers(duration, (x, i) => { E.end[i] = E.start[i] + x; E.busy[i + 1] = E.busy[i] + x; });
  numbers(name, (x, i) => { E.name[i] = x; });
  numbers(shape, (x, i) => { E.shape[i] = x; });
  numbers(bytes, (x, i) => { E.bytes[i] = x; });
  numbers(detail, (x, i) => { E.detail[i] = x; });
  numbers(number, (x, i) => { E.number[i] = x; });
  numbers(result, (x, i) => { E.result[i] = x; });
  madeFirst = new Uint32Array(total + 2);
  numbers(link, (x, i) => {
    E.call[i] = x ? i + (x % 2 ? -(x + 1) / 2 : x / 2) : -1;
    if (x) madeFirst[E.call[i] + 2]++;
  });
  for (let i = 2; i < total + 2; i++) madeFirst[i] += madeFirst[i - 1];
  made = new Uint32Array(madeFirst[total + 1]);
  for (let i = 0; i < total; i++) if (E.call[i] >= 0) made[madeFirst[E.call[i] + 1]++] = i;
  await Promise.all(counters.map(async (c) => {
    const pairs = [];
    let time = 0;
    numbers(await column("counter-" + c.column), (x, i) => { pairs.push(i % 2 ? x / 1e6 * c.most : time += x); });
    c.time = new Float64Array(pairs.length / 2);
    c.value = new Float64Array(pairs.length / 2);
    pairs.forEach((x, i) => { (i % 2 ? c.value : c.time)[i >> 1] = x; });
    c.peak = c.time[c.value.indexOf(c.value.reduce((a, b) => Math.max(a, b), 0))];
  }));
  makeRates();
}

/* First index in [low, high) whose a[i] > x; for ends: the first event not yet over. */
function above(a, x, low, high) {
  while (low < high) { const mid = (low + high) >>> 1; if (a[mid] > x) high = mid; else low = mid + 1; }
  return low;
}
/* First index in [low, high) whose a[i] >= x, near low more often than not. */
function reach(a, x, low, high) {
  let step = 1;
  while (low + step < high && a[low + step] < x) { low += step; step *= 2; }
  high = Math.min(high, low + step);
  while (low < high) { const mid = (low + high) >>> 1; if (a[mid] >= x) high = mid; else low = mid + 1; }
  return low;
}

/* ---- texts ---- */

const thin = "\u202f";
function scaled(x, units, base, digits = 3) {
  let u = 0;
  while (Math.abs(x) >= base * 0.9995 && u < units.length - 1) { x /= base; u++; }
  const d = u === 0 && Number.isInteger(x) ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(Math.max(Math.abs(x), 1))));
  return x.toFixed(d) + thin + units[u];
}
const span = (ns, digits = 4) => scaled(ns, ["ns", "µs", "ms", "s"], 1000, digits);
const size = (b) => scaled(b, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const rate = (r) => scaled(r, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"], 1000);
const count = (n) => n.toLocaleString("en-US");
const share = (x) => (100 * x).toFixed(x >= 0.0995 && x < 0.9995 ? 1 : x >= 0.9995 ? 0 : 2) + "%";
const nameOf = (i) => (rows[E.row[i]].lane.kind === "calls" ? names[E.name[i]].replace(/_v\d+(_ptsz|_ptds)?$/, "") : names[E.name[i]]) || "(no name)";
const rateOf = (i) => E.bytes[i] && E.end[i] > E.start[i] ? E.bytes[i] / (E.end[i] - E.start[i]) * 1e9 : 0;
/* A moment, with as many digits as a step needs. */
function moment(ns, step) {
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
  const [unit, each] = units.find(([, e]) => step >= e / 10 || e === 1);
  const d = Math.max(0, Math.min(9, -Math.floor(Math.log10(step / each) + 1e-9)));
  return (ns / each + 0).toLocaleString("en-US", { minimumFractionDigits: d, maximumFractionDigits: d }).replace(/^-(?=[0.]*$)/, "") + thin + unit;
}
/* A moment of a table or of an event, as long as the recording asks for. */
const clock = (ns) => about.to < 10e9 ? (ns / 1e6).toLocaleString("en-US", { minimumFractionDigits: 3, maximumFractionDigits: 3 }) + thin + "ms"
  : (ns / 1e9).toLocaleString("en-US", { minimumFractionDigits: 6, maximumFractionDigits: 6 }) + thin + "s";
function element(tag, attributes, ...inside) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) if (k === "class") e.className = v; else if (k.startsWith("on")) e[k] = v; else e.setAttribute(k, v);
  e.append(...inside);
  return e;
}

/* ---- colours ---- */

const light = { shapes: ["#4b7fb3", "#4f9d69", "#dd8b3a", "#a076b0", "#9a7b62", "#8b97a3", "#5d7890", "#86abcf", "#8fc3a0", "#4fa9a6", "#c694bd", "#b3bdc8", "#8f9fe0", "#6b78c4", "#cdb57c", "#b5651d"],
  kernels: ["#4b7fb3", "#3f719f", "#5f93c2", "#497a9c", "#5a84bd", "#447fa8"],
  ranges: ["#9aa7e0", "#8fc1cf", "#c7a6d8", "#d9a8c8", "#b3b8f0", "#a3cfe0", "#d6bde8", "#aab4c8"],
  parts: { wait: "#d0473f", copies: "#8a9a2f", others: "#7a5ea8" }, idle: ["#55606b", "#c9a7a0", "#c3cad1"], memory: "#96703c" };
const dark = { shapes: ["#5b92c9", "#5fb37c", "#e59a4e", "#b389c4", "#ad8d72", "#8793a0", "#6b89a4", "#5579a0", "#4d8a62", "#3f8f8c", "#a9769f", "#5b6774", "#7684c8", "#8f9de6", "#9c8853", "#c9772c"],
  kernels: ["#5b92c9", "#4c82b6", "#6fa3d6", "#568fb3", "#6694d1", "#4f93bf"],
  ranges: ["#5f6cae", "#4e8795", "#8a679d", "#945a86", "#6f78c0", "#47748c", "#775a90", "#5f6c84"],
  parts: { wait: "#e0574e", copies: "#9aab3c", others: "#9479c4" }, idle: ["#6b7783", "#8f716b", "#4a545e"], memory: "#b98d52" };
const media = matchMedia("(prefers-color-scheme: dark)");
let theme, css = {};
/* Black or white, whichever can be read better: one of them always has 4.5:1. */
function ink(colour) {
  const part = (x) => x <= 10 ? x / 3294.6 : ((x / 255 + 0.055) / 1.055) ** 2.4, x = parseInt(colour.slice(1), 16);
  return 0.2126 * part(x >> 16) + 0.7152 * part(x >> 8 & 255) + 0.0722 * part(x & 255) > 0.179 ? "#000000" : "#ffffff";
}
/* #theme=dark or light; else the system's. */
function setTheme() {
  const asked = new URLSearchParams(location.hash.slice(1)).get("theme");
  theme = (asked ? asked === "dark" : media.matches) ? dark : light;
  root.dataset.theme = theme === dark ? "dark" : "light";
  const style = getComputedStyle(root);
  for (const k of ["bg", "panel", "line", "text", "soft", "faint", "accent", "accent-soft", "hot"]) css[k] = style.getPropertyValue("--" + k).trim();
  css.hit = theme === dark ? "#ffd24a" : "#e0a100";
  if (ready) { tell(); legend(); setTab(tab); }
}
/* Kernels of one name have one shade; ranges take colours in turn, those that differ in a number alone the same. */
const tints = new Uint8Array(names.length), plainNames = new Map();
names.forEach((text, i) => { const plain = text.replace(/[ _#:]*\d+$/, ""); if (!plainNames.has(plain)) plainNames.set(plain, plainNames.size % 240); tints[i] = plainNames.get(plain); });
function colourOf(i) {
  const s = E.shape[i];
  if (s === 0 && rows[E.row[i]].lane.kind === "stream") return theme.kernels[tints[E.name[i]] % theme.kernels.length];
  if (s === 12) return theme.ranges[tints[E.name[i]] % theme.ranges.length];
  return theme.shapes[s];
}

/* ---- state ---- */

const whole = { from: about.from, to: Math.max(about.to, about.from + 1) };
const view = { from: whole.from, to: whole.to, y: 0 };
let picked = -1, hover = -1, range = null, links = [];
const folded = new Set();
const AXIS = 26, HEAD = 26, ROW = 19, COUNTER = 34, IDLE = "Idle threads";
let GUTTER = 196, INDENT = 24;         /* of the rows' names */
let items = [], tall = 0;              /* what is drawn below each other */

function layOut() {
  items = [];
  let y = 0, group = null, waiting = false;
  const add = (item, h) => { item.y = y; item.h = h; items.push(item); y += h; };
  lanes.forEach((lane, k) => {
    if (lane.waits && !waiting) {
      waiting = true;
      const n = new Set(lanes.filter((l) => l.waits).map((l) => l.group)).size;
      add({ type: "group", group: IDLE, text: IDLE + " (" + n + ")", open: !folded.has(IDLE) }, HEAD);
    }
    if (waiting && folded.has(IDLE)) return;
    if (lane.group !== group) {
      group = lane.group;
      add({ type: "group", group, text: group, role: lane.role, open: !folded.has(group) }, HEAD);
    }
    if (folded.has(group)) return;
    lane.rows.forEach((row) => { const h = lane.kind === "engine" ? ROW + 2 : ROW; row.item = { type: "row", row, lane }; add(row.item, h); });
    const next = lanes[k + 1];
    if (lane.kind === "engine" && (!next || next.kind !== "engine" || next.group !== group)) {
      rates.forEach((c) => { if (c.device === lane.device) add({ type: "rate", counter: c }, COUNTER); });
      counters.forEach((c) => { if (c.device === lane.device && c.most > 0) add({ type: "counter", counter: c }, COUNTER); });
    }
    if (!next || next.group !== group || next.kind !== lane.kind) y += 4;
  });
  const loose = counters.filter((c) => c.device < 0 && c.most > 0);
  if (loose.length) {
    add({ type: "group", group: "Counters", text: "Counters", open: !folded.has("Counters") }, HEAD);
    if (!folded.has("Counters")) loose.forEach((c) => add({ type: "counter", counter: c }, COUNTER));
  }
  tall = y + 12;
}
/* Threads that only wait, below those that work. */
function foldIdle() {
  if (lanes.some((l) => l.waits) && lanes.some((l) => !l.waits)) folded.add(IDLE);
}

/* ---- drawing ---- */

const chart = $("chart"), map = $("map");
let W = 0, H = 0, cx, mx, MW = 0, ready = false;
function fitCanvas(canvas) {
  const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  canvas.width = Math.max(1, Math.round(box.width * ratio));
  canvas.height = Math.max(1, Math.round(box.height * ratio));
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  return [c, box.width, box.height];
}
const sans = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const X = (t) => GUTTER + (t - view.from) / (view.to - view.from) * (W - GUTTER);
const T = (x) => view.from + (x - GUTTER) / (W - GUTTER) * (view.to - view.from);

/* 1, 2 or 5 times a power of ten. */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least)), m = least / power;
  return Math.max(1, power * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10));
}

const widths = new Map();
function fitted(text, room) {
  let each = widths.get("m");
  if (!each) widths.set("m", each = cx.measureText("abcdefghijklmnopqrstuvwxyz_<>").width / 29);
  const n = Math.floor((room - 3) / each);
  return text.length <= n || cx.measureText(text).width <= room ? text : n < 4 ? "" : text.slice(0, n - 1) + "…";
}

function drawRow(item, y, h) {
  const { row } = item, s = (W - GUTTER) / (view.to - view.from), last = row.first + row.n;
  const hits = search && search.before, thinRow = item.lane.kind === "engine";
  let i = above(E.end, view.from, row.first, last);
  while (i > row.first && E.end[i - 1] >= view.from && E.start[i - 1] === E.end[i - 1]) i--;
  const top = y + 1.5, tallness = h - 3;
  let colour = "";
  while (i < last && E.start[i] < view.to) {
    const x0 = GUTTER + (E.start[i] - view.from) * s, x1 = GUTTER + (E.end[i] - view.from) * s;
    if (x1 - x0 >= 1.6) {
      const c = colourOf(i), left = Math.max(x0, GUTTER - 4), width = Math.min(x1, W + 4) - left;
      const hit = !hits || hits[i + 1] > hits[i];
      cx.globalAlpha = hit ? 1 : 0.16;
      cx.fillStyle = c; colour = c;
      if (width > 5) { cx.beginPath(); cx.roundRect(left, top, width - 0.8, tallness, 2.5); cx.fill(); }
      else cx.fillRect(left, top, Math.max(1, width - 0.5), tallness);
      if (hits && hit) { cx.strokeStyle = css.hit; cx.lineWidth = 1.5; cx.strokeRect(left + 0.5, top + 0.5, Math.max(1, width - 1.5), tallness - 1); }
      if (width > 26 && hit && !(thinRow && E.shape[i] === 6)) {
        const seen = Math.max(left, GUTTER), room = Math.min(x1, W) - seen - 9;
        const text = fitted(thinRow ? (E.bytes[i] ? size(E.bytes[i]) : "") : nameOf(i).replace(/_v\d+(_ptsz|_ptds)?$/, ""), room);
        if (text) { cx.fillStyle = ink(c); colour = ""; cx.fillText(text, seen + 4.5, y + h / 2 + 0.5); }
      }
      i++;
      continue;
    }
    /* All that begins in this pixel: one bar, as strong as it is busy. */
    const px = Math.floor(x0), until = view.from + (px + 1 - GUTTER) / s;
    let j = Math.max(i + 1, reach(E.start, until, i, last));
    if (j - 1 > i && (E.end[j - 1] - E.start[j - 1]) * s >= 1.6) j--;
    if (px >= GUTTER - 1) {
      const busy = (E.busy[j] - E.busy[i]) * s, hit = !hits || hits[j] > hits[i];
      const c = hits && hit ? css.hit : colourOf((i + j) >> 1);
      if (c !== colour) cx.fillStyle = colour = c;
      cx.globalAlpha = !hit ? 0.14 : hits ? 1 : 0.4 + 0.6 * Math.min(1, Math.ceil(busy * 5) / 5);
      cx.fillRect(px, top, 1, tallness);
    }
    i = j;
  }
  cx.globalAlpha = 1;
}

function drawCounter(c, y, h, left, right, from, to, ctx, colour) {
  const s = (right - left) / (to - from), base = y + h - 3, high = h - 8;
  let i = Math.max(0, above(c.time, from, 0, c.time.length) - 1);
  ctx.beginPath();
  ctx.moveTo(Math.max(left, left + ((c.time[i] || 0) - from) * s), base);
  let px = -1, peak = 0;
  for (; i < c.time.length && c.time[i] < to; i++) {
    const x = Math.max(left, left + (c.time[i] - from) * s), stop = i + 1 < c.time.length ? c.time[i + 1] : to;
    const end = Math.min(right, left + (stop - from) * s), column = Math.floor(end);
    if (column === Math.floor(x)) { /* several in a pixel: the highest */
      peak = column === px ? Math.max(peak, c.value[i]) : c.value[i];
      px = column;
    } else { peak = Math.max(c.value[i], Math.floor(x) === px ? peak : 0); px = -1; }
    const top = base - (c.most ? Math.min(1, peak / c.most) : 0) * high;
    ctx.lineTo(x, top);
    ctx.lineTo(end, top);
    if (px < 0) peak = 0;
  }
  ctx.lineTo(Math.min(right, Math.max(left, left + ((c.time[c.time.length - 1] || 0) - from) * s)), base);
  ctx.closePath();
  ctx.globalAlpha = 0.28; ctx.fillStyle = colour; ctx.fill();
  ctx.globalAlpha = 0.9; ctx.strokeStyle = colour; ctx.lineWidth = 1; ctx.stroke();
  ctx.globalAlpha = 1;
}
const counterColour = (c) => c.unit === "bytes" ? theme.memory : theme.shapes[c.name.startsWith("H2D") ? 1 : c.name.startsWith("D2H") ? 2 : c.name === "GPU busy" ? 6 : 3];
const counterText = (c, v) => c.unit === "bytes" ? size(v) : c.unit === "bytes/s" ? rate(v) : c.unit === "%" ? v.toFixed(1) + "%" : scaled(v, ["", "k", "M", "G"], 1000);

function drawAxis() {
  const step = niceStep((view.to - view.from) / Math.max(2, (W - GUTTER) / 120));
  cx.fillStyle = css.panel; cx.fillRect(0, 0, W, AXIS);
  cx.strokeStyle = css.line; cx.lineWidth = 1;
  cx.textAlign = "center"; cx.font = "11px " + sans; cx.fillStyle = css.soft;
  for (let t = Math.ceil(Math.max(view.from, 0) / step) * step; t <= view.to; t += step) {
    const x = Math.round(X(t)) + 0.5;
    cx.beginPath(); cx.moveTo(x, AXIS - 5); cx.lineTo(x, AXIS); cx.stroke();
    if (x < W - 26 && x > GUTTER + 22) cx.fillText(moment(t, step), x, AXIS / 2 - 1);
    else if (x <= GUTTER + 22) { cx.textAlign = "left"; cx.fillText(moment(t, step), Math.max(x, GUTTER) + 2, AXIS / 2 - 1); cx.textAlign = "center"; }
  }
  if (marks.length) { /* where steps begin */
    cx.fillStyle = css.hot;
    const last = above(marks, view.to, 0, marks.length);
    for (let i = above(marks, view.from, 0, marks.length), px = -9; i < last; i++) {
      const x = Math.round(X(marks[i]));
      if (x >= px + 3 && x >= GUTTER) { cx.fillRect(x, AXIS - 6, 1.5, 6); px = x; }
    }
  }
  cx.textAlign = "left"; cx.fillStyle = css.faint; cx.fillText(marks.length ? "Time, steps" : "Time", 14, AXIS / 2);
  cx.beginPath(); cx.moveTo(0, AXIS - 0.5); cx.lineTo(W, AXIS - 0.5); cx.stroke();
}

const stepsAt = (() => { let t = 0; return Float64Array.from(about.story.marks, (d) => t += d); })();
const marks = stepsAt.filter((t) => t >= about.from && t <= about.to);
function gridLines() {
  const step = niceStep((view.to - view.from) / Math.max(2, (W - GUTTER) / 120));
  cx.strokeStyle = css.line; cx.lineWidth = 1; cx.globalAlpha = 0.55;
  cx.beginPath();
  for (let t = Math.ceil(Math.max(view.from, 0) / step) * step; t <= view.to; t += step) { const x = Math.round(X(t)) + 0.5; if (x > GUTTER) { cx.moveTo(x, AXIS); cx.lineTo(x, H); } }
  cx.stroke();
  cx.globalAlpha = 1;
}

/* Of the time that is visible. */
function seenShare(row) {
  const from = Math.max(view.from, whole.from), to = Math.min(view.to, whole.to);
  return rowSum(row, from, to).busy / Math.max(1, to - from);
}
function drawLabels(shown) {
  cx.fillStyle = css.panel; cx.fillRect(0, AXIS, GUTTER, H - AXIS);
  cx.strokeStyle = css.line; cx.beginPath(); cx.moveTo(GUTTER - 0.5, 0); cx.lineTo(GUTTER - 0.5, H); cx.stroke();
  for (const item of shown) {
    const y = AXIS + item.y - view.y, middle = y + item.h / 2;
    cx.textAlign = "left";
    if (item.type === "group") {
      cx.fillStyle = css.panel; cx.fillRect(0, y, W, item.h);
      cx.strokeStyle = css.line; cx.beginPath(); cx.moveTo(0, y + 0.5); cx.lineTo(W, y + 0.5); cx.stroke();
      cx.fillStyle = css.faint;
      cx.beginPath();
      if (item.open) { cx.moveTo(9, middle - 2.5); cx.lineTo(17, middle - 2.5); cx.lineTo(13, middle + 3); } else { cx.moveTo(10.5, middle - 4); cx.lineTo(16, middle); cx.lineTo(10.5, middle + 4); }
      cx.fill();
      cx.fillStyle = css.text; cx.font = "600 12px " + sans;
      cx.fillText(item.text, 24, middle + 0.5);
      if (item.role) { const x = 24 + cx.measureText(item.text).width + 10; cx.fillStyle = css.soft; cx.font = "12px " + sans; cx.fillText(item.role, x, middle + 0.5); }
    } else if (item.type !== "row") {
      const c = item.counter, peak = item.type === "rate" ? counterText(c, item.peak || 0) + " in " + span((view.to - view.from) / (W - GUTTER), 2) : counterText(c, c.most) + (c.unit === "bytes" ? " at " + moment(c.peak, (whole.to - whole.from) / 100) : "");
      cx.fillStyle = css.soft; cx.font = "11.5px " + sans; cx.fillText(c.name === "GPU busy" ? "GPU busy, over time" : c.name, INDENT, middle - 5, GUTTER - INDENT - 8);
      cx.fillStyle = css.faint; cx.font = "10.5px " + sans; cx.fillText("peak " + peak, INDENT, middle + 8, GUTTER - INDENT - 8);
    } else if (item.row.level === 0) {
      const engine = item.lane.kind === "engine";
      cx.fillStyle = engine ? css.text : css.soft; cx.font = "11.5px " + sans;
      cx.fillText(item.lane.label, INDENT, middle + 0.5, GUTTER - INDENT - (engine ? 54 : 8));
      if (engine) { cx.textAlign = "right"; cx.fillStyle = css.faint; cx.fillText(share(seenShare(item.row)), GUTTER - (INDENT < 24 ? 5 : 10), middle + 0.5); }
    }
  }
  cx.textAlign = "left";
}

function place(i) {
  const item = rows[E.row[i]].item;
  if (!item || !items.includes(item)) return null;
  const y = AXIS + item.y - view.y;
  return { x0: X(E.start[i]), x1: X(E.end[i]), y: y + 1.5, h: item.h - 3 };
}

function outline(i, colour, width) {
  const p = place(i);
  if (!p || p.x1 < GUTTER || p.x0 > W) return;
  const left = Math.max(p.x0, GUTTER - 3);
  cx.strokeStyle = colour; cx.lineWidth = width;
  cx.beginPath(); cx.roundRect(left - 1, p.y - 1, Math.max(3, Math.min(p.x1, W + 3) - left) + 1.2, p.h + 2, 3); cx.stroke();
}

function drawLink(call, op) {
  const a = place(call), b = place(op);
  if (!a || !b) return;
  const down = b.y > a.y, x0 = Math.min(a.x1, Math.max(a.x0, (a.x0 + Math.min(a.x1, W)) / 2)), x1 = b.x0 + Math.min(3, (b.x1 - b.x0) / 2);
  const y0 = down ? a.y + a.h : a.y, y1 = down ? b.y : b.y + b.h, bend = Math.max(18, Math.abs(y1 - y0) * 0.45) * (down ? 1 : -1);
  cx.strokeStyle = css.accent; cx.lineWidth = 1.6; cx.globalAlpha = 0.85;
  cx.beginPath(); cx.moveTo(x0, y0); cx.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1); cx.stroke();
  cx.fillStyle = css.accent; const d = down ? -1 : 1;
  cx.beginPath(); cx.moveTo(x1, y1); cx.lineTo(x1 - 3.5, y1 + 6 * d); cx.lineTo(x1 + 3.5, y1 + 6 * d); cx.fill();
  cx.globalAlpha = 1;
}

function drawRange() {
  if (!range) return;
  const x0 = Math.max(GUTTER, X(range.from)), x1 = Math.min(W, X(range.to));
  if (x1 <= x0) return;
  cx.fillStyle = css.accent; cx.globalAlpha = 0.1; cx.fillRect(x0, AXIS, x1 - x0, H);
  cx.globalAlpha = 0.28; cx.fillRect(x0, 0, x1 - x0, AXIS); cx.globalAlpha = 1;
  cx.strokeStyle = css.accent; cx.lineWidth = 1;
  cx.beginPath(); cx.moveTo(x0 + 0.5, 0); cx.lineTo(x0 + 0.5, H); cx.moveTo(x1 - 0.5, 0); cx.lineTo(x1 - 0.5, H); cx.stroke();
  const text = span(range.to - range.from);
  cx.font = "600 11px " + sans; cx.textAlign = "center"; cx.fillStyle = css.text;
  if (x1 - x0 > 60) cx.fillText(text, (x0 + x1) / 2, AXIS / 2);
  cx.textAlign = "left";
}

function drawMap() {
  mx.fillStyle = css.bg; mx.fillRect(0, 0, MW, 46);
  mx.fillStyle = css.panel; mx.fillRect(0, 0, GUTTER, 46);
  mx.font = "11px " + sans; mx.textBaseline = "middle"; mx.fillStyle = css.faint; mx.fillText("Overview", 14, 16);
  mx.fillText(span(whole.to - whole.from), 14, 31);
  const at = (t) => GUTTER + (t - whole.from) / (whole.to - whole.from) * (MW - GUTTER);
  const first = rates.find((c) => c.name === "GPU busy");
  if (first) drawRate(first, 2, 44, GUTTER, MW, whole.from, whole.to, mx, counterColour(first));
  const x0 = at(view.from), x1 = Math.max(at(view.to), x0 + 3);
  mx.fillStyle = theme === dark ? "rgba(5,8,12,.55)" : "rgba(110,125,140,.22)";
  mx.fillRect(GUTTER, 0, x0 - GUTTER, 46); mx.fillRect(x1, 0, MW - x1, 46);
  mx.strokeStyle = css.accent; mx.lineWidth = 1.5; mx.strokeRect(x0 + 0.75, 0.75, Math.max(2, x1 - x0 - 1.5), 44.5);
  if (range) { mx.fillStyle = css.accent; mx.globalAlpha = 0.35; mx.fillRect(at(range.from), 40, Math.max(2, at(range.to) - at(range.from)), 6); mx.globalAlpha = 1; }
  if (picked >= 0) { mx.fillStyle = css.accent; mx.fillRect(at(E.start[picked]) - 1, 0, 2, 46); }
  mx.strokeStyle = css.line; mx.lineWidth = 1; mx.beginPath(); mx.moveTo(GUTTER - 0.5, 0); mx.lineTo(GUTTER - 0.5, 46); mx.stroke();
}

function draw() {
  if (!cx || !ready) return;
  cx.textBaseline = "middle";
  cx.fillStyle = css.bg; cx.fillRect(0, 0, W, H);
  view.y = Math.max(0, Math.min(view.y, tall - (H - AXIS)));
  const shown = items.filter((m) => m.y + m.h > view.y && m.y < view.y + H - AXIS);
  gridLines();
  cx.save(); cx.beginPath(); cx.rect(GUTTER, AXIS, W - GUTTER, H - AXIS); cx.clip();
  for (const item of shown) {
    const y = AXIS + item.y - view.y;
    cx.font = "11px " + sans;
    if (item.type === "row") drawRow(item, y, item.h);
    else if (item.type === "rate") item.peak = drawRate(item.counter, y, item.h, GUTTER, W, view.from, view.to, cx, counterColour(item.counter));
    else if (item.type === "counter") drawCounter(item.counter, y, item.h, GUTTER, W, view.from, view.to, cx, counterColour(item.counter));
  }
  cx.restore();
  drawLabels(shown);
  cx.save(); cx.beginPath(); cx.rect(GUTTER, AXIS, W - GUTTER, H - AXIS); cx.clip();
  if (hover >= 0) outline(hover, css.text, 1.2);
  for (const [call, op] of links) { outline(call, css.accent, 2); outline(op, css.accent, 2); }
  for (const [call, op] of links) drawLink(call, op);
  if (picked >= 0) outline(picked, css.accent, 2.4);
  cx.restore();
  drawAxis();
  drawRange();
  if (tall > H - AXIS) { /* a scroll bar, for the eye */
    const part = (H - AXIS) / tall, long = Math.max(24, part * (H - AXIS));
    cx.fillStyle = css.faint; cx.globalAlpha = 0.5;
    cx.beginPath(); cx.roundRect(W - 7, AXIS + 2 + view.y / (tall - (H - AXIS)) * (H - AXIS - long - 4), 4, long, 2); cx.fill(); cx.globalAlpha = 1;
  }
  drawMap();
  rememberSoon();
  $("where").textContent = moment(Math.max(view.from, whole.from), (view.to - view.from) / 50) + " – " + moment(Math.min(view.to, whole.to), (view.to - view.from) / 50) + "  ·  " + span(Math.min(view.to, whole.to) - Math.max(view.from, whole.from));
}

let asked = false, later = 0;
function redraw(moved) {
  if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); }
  if (moved) { clearTimeout(later); later = setTimeout(settled, 120); }
}
/* What waits until the view stands still. */
function settled() {
  if (panels[tab].moved) panels[tab].moved();
}
function resize() {
  [GUTTER, INDENT] = innerWidth < 640 ? [112, 8] : [196, 24];
  [cx, W, H] = fitCanvas(chart);
  [mx, MW] = fitCanvas(map);
  draw(); /* at once: a new size has cleared the canvas */
  if (tab === "table") drawCells();
}

/* ---- moving ---- */

function show(from, to) {
  const most = whole.to - whole.from, least = Math.min(most, 20);
  let width = Math.max(least, Math.min(most * 1.02, to - from));
  if (width !== to - from) { const mid = (from + to) / 2; from = mid - width / 2; }
  const slack = Math.min(most, width) * 0.01;
  from = Math.max(whole.from - slack, Math.min(from, whole.to + slack - width));
  view.from = from; view.to = from + width;
  redraw(true);
}
const { story } = about, placed = story.to > story.from;
const showSteps = () => { if (placed) show(story.from, story.to); else fit(); };
const fit = () => show(whole.from - (whole.to - whole.from) * 0.01, whole.to + (whole.to - whole.from) * 0.01);
function zoom(factor, at = (view.from + view.to) / 2) { show(at - (at - view.from) * factor, at + (view.to - at) * factor); }
function pan(part) { const d = (view.to - view.from) * part; show(view.from + d, view.to + d); }
function reveal(i, close) {
  const row = rows[E.row[i]];
  const hidden = folded.delete(row.lane.group), idle = row.lane.waits && folded.delete(IDLE);
  if (hidden || idle) layOut();
  const wide = view.to - view.from, long = E.end[i] - E.start[i];
  if (close || E.end[i] < view.from || E.start[i] > view.to || long < wide / 2000) {
    /* With the call or the first work it is linked to, if both are to be seen. */
    const others = related(i).slice(0, 1), first = Math.min(E.start[i], ...others.map((o) => E.start[o])), last = Math.max(E.end[i], ...others.map((o) => E.end[o]));
    const both = !close && (last - first) * 1.3 < long * (W - GUTTER) / 4;
    const low = both ? first : E.start[i], high = both ? last : E.end[i];
    const width = close || long > wide || long < wide / 400 ? Math.max(long * (close ? 3 : 12), (high - low) * 1.3, 200) : wide, mid = width > (high - low) ? (low + high) / 2 : (E.start[i] + E.end[i]) / 2;
    show(mid - width / 2, mid + width / 2);
  }
  const item = row.item;
  if (item.y < view.y) view.y = item.y - HEAD;
  else if (item.y + item.h > view.y + H - AXIS) view.y = item.y + item.h - (H - AXIS) + HEAD;
  redraw(true);
}

/* ---- one event ---- */

function facts(i, all) {
  const lane = rows[E.row[i]].lane, out = [];
  const add = (k, v, bad) => out.push([k, v, bad]);
  add("Kind", shapes[E.shape[i]].name + (lane.kind === "engine" ? " (" + lane.label + ")" : ""));
  add("Start", clock(E.start[i]));
  add("Duration", span(E.end[i] - E.start[i]));
  if (E.bytes[i]) add("Bytes", size(E.bytes[i]) + (all ? " (" + count(E.bytes[i]) + ")" : ""));
  if (rateOf(i) && E.shape[i] < 6) add("Rate", rate(rateOf(i)));
  if (E.detail[i]) add(lane.kind === "stream" && E.shape[i] ? "Memory" : "Detail", details[E.detail[i]]);
  if (lane.kind === "engine") add("Operations", count(E.number[i]));
  if (lane.kind === "calls") {
    if (all) add("Correlation", String(E.number[i]));
    if (E.result[i]) add("Result", "failed: error " + E.result[i], true);
    const n = madeFirst[i + 1] - madeFirst[i];
    if (n) { const op = made[madeFirst[i]]; add("Device work", n === 1 ? nameOf(op) + ", " + span(E.end[op] - E.start[op]) + ", " + span(E.start[op] - E.start[i]) + " after the call began" : count(n) + " operations"); }
  }
  if (E.call[i] >= 0) { const c = E.call[i]; add("Call", nameOf(c) + ", " + span(E.start[i] - E.start[c]) + " before"); if (all) add("Correlation", String(E.number[c])); }
  add("Row", lane.group + " · " + lane.label);
  return out;
}
function factList(i, all) {
  const dl = element("dl", { class: "facts" });
  for (const [k, v, bad] of facts(i, all)) dl.append(element("dt", {}, k), element("dd", bad ? { class: "bad" } : {}, v));
  return dl;
}
function related(i) {
  const out = [];
  if (E.call[i] >= 0) out.push(E.call[i]);
  for (let k = madeFirst[i]; k < madeFirst[i + 1] && out.length < 500; k++) out.push(made[k]);
  return out;
}
function pick(i, keepTab) {
  picked = i;
  links = [];
  const pane = $("pane-details");
  if (i < 0) { pane.replaceChildren(element("p", { class: "hint" }, "Click an event to see all about it. A call's device work, and the call of device work, are linked.")); redraw(false); return; }
  const others = related(i);
  for (const o of others.slice(0, 200)) links.push(E.call[i] === o ? [o, i] : [i, o]);
  const list = element("div", { class: "linked" });
  for (const o of others.slice(0, 200)) list.append(element("button", { onclick: () => { pick(o); reveal(o); } }, element("span", {}, nameOf(o)), element("em", {}, span(E.end[o] - E.start[o]))));
  const right = others.length ? element("div", {}, element("h2", {}, E.call[i] >= 0 ? "Made by the call" : "Its device work (" + count(madeFirst[i + 1] - madeFirst[i]) + ")"), list) : "";
  const text = nameOf(i), same = element("button", { onclick: () => { $("search").value = text; find(text); } }, "Find all of this name");
  pane.replaceChildren(element("h2", { class: "name" }, text), element("div", { class: "columns" }, element("div", {}, factList(i, true), element("p", {}, same)), right));
  if (!keepTab) setTab("details");
  if (tab === "table") drawCells();
  redraw(false);
}

/* ---- a range's sums ---- */

/* Time, events and bytes of a row in [from, to): events are those that begin in it. */
function rowSum(row, from, to) {
  const last = row.first + row.n, a = above(E.end, from, row.first, last), b = reach(E.start, to, a, last);
  let busy = E.busy[b] - E.busy[a];
  if (b > a) busy -= Math.max(0, from - E.start[a]) + Math.max(0, E.end[b - 1] - to);
  return { a, b, busy: Math.max(0, busy) };
}
function meter(part, colour) {
  const i = element("i", {});
  i.style.width = Math.min(100, 100 * part) + "%"; i.style.background = colour;
  return element("span", { class: "meter", "aria-hidden": "true" }, i);
}
function swatch(colour) { const i = element("i", {}); i.style.background = colour; return i; }
function sumsTable(heads, body) {
  const table = element("table", { class: "sums" }, element("tr", {}, ...heads.map((h) => element("th", { scope: "col" }, h))));
  for (const line of body) table.append(element("tr", {}, ...line.map((c) => element("td", {}, ...(Array.isArray(c) ? c : [c])))));
  return table;
}
function showRange() {
  const from = Math.max(whole.from, range ? range.from : view.from), to = Math.min(whole.to, range ? range.to : view.to), wide = Math.max(1, to - from);
  const engines = [], kinds = shapes.map(() => ({ n: 0, time: 0, bytes: 0, longest: 0, which: -1 }));
  for (const row of rows) {
    const { lane } = row, s = rowSum(row, from, to);
    if (lane.kind === "engine") {
      const label = (new Set(lanes.filter((l) => l.kind === "engine").map((l) => l.device)).size > 1 ? lane.group.match(/^GPU \d+( . [AB](?=:))?/)[0] + " " : "") + lane.label;
      const c = theme.shapes[[6, 1, 0, 2, 3, 15][lane.engine]];
      engines.push([[swatch(c), label], [share(s.busy / wide), meter(s.busy / wide, c)], span(s.busy), span(wide - s.busy)]);
    } else {
      for (let i = s.a; i < s.b; i++) {
        if (E.start[i] < from) continue;
        const k = kinds[E.shape[i]], d = E.end[i] - E.start[i];
        k.n++; k.time += d; k.bytes += E.bytes[i];
        if (d >= k.longest) { k.longest = d; k.which = i; }
      }
    }
  }
  const body = kinds.map((k, s) => [k, s]).filter(([k]) => k.n).map(([k, s]) => [[swatch(theme.shapes[s]), shapes[s].name], count(k.n), span(k.time), span(k.time / k.n),
    element("button", { style: "border:0;background:none;padding:0;color:inherit", title: nameOf(k.which), onclick: () => { pick(k.which); reveal(k.which); } }, span(k.longest)), k.bytes ? size(k.bytes) : "", k.bytes && s < 6 && k.time ? rate(k.bytes / k.time * 1e9) : ""]);
  $("pane-range").replaceChildren(element("div", { class: "columns" },
    element("div", {}, element("h2", {}, (range ? "Selected: " : "Visible: ") + span(wide)), engines.length ? sumsTable(["", "busy", "", "idle"], engines) : element("p", { class: "hint" }, "No device work.")),
    element("div", {}, element("h2", {}, "Events that begin in it"), body.length ? sumsTable(["", "events", "time", "mean", "longest", "bytes", "rate"], body) : element("p", { class: "hint" }, "None.")),
    range ? "" : element("p", { class: "hint" }, "Shift + drag, or drag on the time axis, to select a range.")));
  root.dataset.rangeBusy = engines.length ? engines[0][1][0] : "";
}

/* ---- table ---- */

const LINE = 22, MOST = 8e6;
const heads = [["Start", "num", (i) => E.start[i]], ["Duration", "num", (i) => E.end[i] - E.start[i]], ["Kind", "", (i) => E.shape[i]], ["Name", "", null],
  ["Row", "", (i) => E.row[i]], ["Bytes", "num", (i) => E.bytes[i]], ["Rate", "num", rateOf], ["Detail", "", (i) => E.detail[i]]];
let listed = new Uint32Array(0), sorting = 0, descending = false, everything = null, nameRank = null;
let only = -1; /* the one of the lanes that the table lists; -1: all */
function setOnly(k) {
  only = k;
  $("only").value = String(k);
  if (tab === "table") fillTable();
}
function listRows() {
  const option = (k, text) => element("option", { value: String(k) }, text);
  $("only").replaceChildren(option(-1, "All rows"), ...lanes.map((l, k) => l.kind === "engine" ? "" : option(k, l.group + " · " + l.label)));
  $("only").onchange = () => setOnly(Number($("only").value));
}
function fillTable() {
  const from = range ? range.from : view.from, to = range ? range.to : view.to;
  let n = 0;
  if (!everything) { /* once: all events by start */
    const list = new Uint32Array(total);
    for (let i = 0; i < total; i++) if (rows[E.row[i]].lane.kind !== "engine") list[n++] = i;
    everything = byStart(list.subarray(0, n));
  }
  const out = new Uint32Array(everything.length);
  n = 0;
  for (const i of everything) if (E.start[i] < to && E.end[i] >= from && (only < 0 || rows[E.row[i]].lane === lanes[only]) && (!search || search.before[i + 1] > search.before[i])) out[n++] = i;
  listed = out.subarray(0, n);
  if (sorting !== 0) {
    let key = heads[sorting][2];
    if (!key) {
      if (!nameRank) { nameRank = new Uint32Array(names.length); names.map((t, i) => [t, i]).sort((a, b) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0).forEach(([, i], k) => { nameRank[i] = k; }); }
      key = (i) => nameRank[E.name[i]];
    }
    const keys = new Float64Array(n), order = new Uint32Array(n), was = listed;
    for (let k = 0; k < n; k++) { keys[k] = key(was[k]); order[k] = k; }
    order.sort((a, b) => keys[a] - keys[b] || a - b);
    listed = order.map((k) => was[k]);
  }
  if (descending) listed = listed.slice().reverse();
  $("tall").style.height = Math.min(MOST, n * LINE) + "px";
  $("tabnote").textContent = count(n) + " events in the " + (range ? "selected" : "visible") + " range" + (search ? " that match" : "") + (only < 0 ? "" : ", of one row");
  root.dataset.listed = String(n);
  drawCells();
}
function drawHeads() {
  $("heads").replaceChildren(...heads.map(([text, kind], k) => element("button", { class: kind, role: "columnheader", "aria-sort": k !== sorting ? "none" : descending ? "descending" : "ascending",
    onclick: () => { if (sorting === k) descending = !descending; else { sorting = k; descending = heads[k][1] === "num" && k > 0; } drawHeads(); fillTable(); } }, text + (k === sorting ? (descending ? " ↓" : " ↑") : ""))));
}
function drawCells() {
  const box = $("scroll"), seen = Math.ceil(box.clientHeight / LINE) + 2, full = listed.length * LINE;
  /* Browsers end at some 16 million pixels: beyond, a pixel stands for more of the list. */
  const first = full <= MOST ? Math.floor(box.scrollTop / LINE) : Math.round(box.scrollTop / Math.max(1, MOST - box.clientHeight) * Math.max(0, listed.length - seen + 2));
  const top = full <= MOST ? first * LINE : box.scrollTop, cells = [];
  for (let k = first; k < Math.min(listed.length, first + seen); k++) {
    const i = listed[k], lane = rows[E.row[i]].lane, r = rateOf(i);
    const line = element("div", { class: "cell-row", role: "row", "aria-selected": String(i === picked), onclick: () => { pick(i, true); reveal(i); }, ondblclick: () => reveal(i, true) },
      element("span", { class: "num" }, clock(E.start[i])), element("span", { class: "num" }, span(E.end[i] - E.start[i])), element("span", {}, swatch(colourOf(i)), shapes[E.shape[i]].name),
      element("span", { class: "name", title: nameOf(i) }, nameOf(i)), element("span", { title: lane.group + " · " + lane.label }, lane.kind === "stream" ? lane.label : lane.group.replace(/^.*· /, "")),
      element("span", { class: "num" }, E.bytes[i] ? size(E.bytes[i]) : ""), element("span", { class: "num" }, r && E.shape[i] < 6 ? rate(r) : ""), element("span", { title: details[E.detail[i]] }, details[E.detail[i]]));
    line.style.top = top + (k - first) * LINE + "px";
    cells.push(line);
  }
  $("cells").replaceChildren(...cells);
}

/* ---- the panels below ---- */

/* Each has a button "tab-NAME" and a part "pane-NAME" in timeline.html. opened: it is shown, or what
 * it shows changed; moved: the view stands still again. */
const panels = {
  findings: { opened: showFindings },
  range: { opened: showRange, moved: () => { if (!range) showRange(); } },
  details: {},
  table: { opened: fillTable, moved: fillTable },
};
let tab = "range";
function setTab(which) {
  tab = which;
  for (const t of Object.keys(panels)) {
    $("tab-" + t).setAttribute("aria-selected", String(t === which));
    $("pane-" + t).hidden = t !== which;
  }
  $("tabnote").textContent = "";
  $("only").hidden = which !== "table";
  if (panels[which].opened) panels[which].opened();
  rememberSoon();
}

/* ---- mouse and keys ---- */

function itemAt(y) {
  const want = y - AXIS + view.y;
  return y < AXIS ? null : items.find((m) => want >= m.y && want < m.y + m.h) || null;
}
function eventAt(x, y) {
  const item = itemAt(y);
  if (!item || item.type !== "row" || x < GUTTER) return -1;
  const { row } = item, last = row.first + row.n, near = (view.to - view.from) / (W - GUTTER) * 2, t = T(x);
  const i = above(E.end, t - near, row.first, last);
  let best = -1, gap = near;
  for (let k = i; k < last && k < i + 64 && E.start[k] <= t + near; k++) {
    const d = Math.max(0, E.start[k] - t, t - E.end[k]);
    if (d < gap || best < 0) { best = k; gap = d; }
  }
  return best;
}
function showTip(x, y) {
  const tip = $("tip"), item = itemAt(y);
  if (hover >= 0) tip.replaceChildren(element("b", {}, nameOf(hover)), factList(hover, false));
  else if (item && item.type === "rate" && x > GUTTER) {
    const at = Math.floor(x), v = rateIn(item.counter, T(at), T(at + 1), 1)[0];
    tip.replaceChildren(element("b", {}, item.counter.name), element("span", {}, counterText(item.counter, v) + " in " + span(T(at + 1) - T(at)) + " from " + moment(T(at), (view.to - view.from) / 1000)));
  } else if (item && item.type === "counter" && x > GUTTER) {
    const c = item.counter, k = above(c.time, T(x), 0, c.time.length) - 1;
    tip.replaceChildren(element("b", {}, c.name), element("span", {}, counterText(c, k < 0 ? 0 : c.value[k]) + " at " + moment(T(x), (view.to - view.from) / 1000)));
  } else if (item && item.type === "row" && x < GUTTER) tip.replaceChildren(element("span", {}, item.lane.group + " · " + item.lane.label));
  else { tip.hidden = true; return; }
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, W - box.width - 8)) + "px";
  tip.style.top = (y + 18 + box.height > H ? Math.max(4, y - box.height - 12) : y + 18) + "px";
}

let drag = null;
chart.addEventListener("pointerdown", (e) => {
  if (e.button) return;
  const x = e.offsetX, y = e.offsetY;
  chart.setPointerCapture(e.pointerId);
  drag = { x, y, from: view.from, to: view.to, top: view.y, moved: false, select: (e.shiftKey || y < AXIS) && x >= GUTTER, at: T(x) };
  $("tip").hidden = true;
});
chart.addEventListener("pointermove", (e) => {
  const x = e.offsetX, y = e.offsetY;
  if (!drag) {
    hover = eventAt(x, y);
    showTip(x, y);
    chart.style.cursor = hover >= 0 || (x < GUTTER && itemAt(y)?.type === "group") ? "pointer" : y < AXIS && x > GUTTER ? "col-resize" : "default";
    redraw(false);
    return;
  }
  if (Math.abs(x - drag.x) + Math.abs(y - drag.y) > 3) drag.moved = true;
  if (!drag.moved) return;
  if (drag.select) {
    const t = Math.max(whole.from, Math.min(T(x), whole.to)), a = Math.max(whole.from, Math.min(drag.at, whole.to));
    range = { from: Math.min(a, t), to: Math.max(a, t) };
    redraw(false);
  } else {
    chart.style.cursor = "grabbing";
    const d = (x - drag.x) / (W - GUTTER) * (drag.to - drag.from);
    view.y = drag.top - (y - drag.y);
    show(drag.from - d, drag.to - d);
  }
});
chart.addEventListener("pointerup", (e) => {
  const was = drag;
  drag = null;
  if (!was) return;
  if (was.moved && was.select) { setTab(tab === "table" ? "table" : "range"); return; }
  if (was.moved) return;
  const item = itemAt(e.offsetY);
  if (item && item.type === "row" && e.offsetX < GUTTER) { setOnly(lanes.indexOf(item.lane)); setTab("table"); return; }
  if (item && item.type === "group") { if (!folded.delete(item.group)) folded.add(item.group); layOut(); redraw(false); return; }
  if (e.offsetY < AXIS) { range = null; setTab(tab); redraw(true); return; }
  pick(eventAt(e.offsetX, e.offsetY));
  if (picked < 0 && range) { range = null; setTab("range"); }
});
chart.addEventListener("pointerleave", () => { hover = -1; $("tip").hidden = true; redraw(false); });
chart.addEventListener("dblclick", (e) => { const i = eventAt(e.offsetX, e.offsetY); if (i >= 0) reveal(i, true); });
chart.addEventListener("wheel", (e) => {
  e.preventDefault();
  const d = e.deltaY * (e.deltaMode === 1 ? 16 : 1);
  if (e.offsetX < GUTTER) { view.y += d; redraw(false); }
  else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan((e.deltaX || d) / (W - GUTTER));
  else zoom(Math.exp(Math.max(-120, Math.min(120, d)) * 0.0022), T(e.offsetX));
}, { passive: false });

let mapDrag = false;
function mapMove(e) {
  const t = whole.from + (e.offsetX - GUTTER) / (MW - GUTTER) * (whole.to - whole.from), half = (view.to - view.from) / 2;
  show(t - half, t + half);
}
map.addEventListener("pointerdown", (e) => { mapDrag = true; map.setPointerCapture(e.pointerId); mapMove(e); });
map.addEventListener("pointermove", (e) => { if (mapDrag) mapMove(e); });
map.addEventListener("pointerup", () => { mapDrag = false; });
map.addEventListener("wheel", (e) => { e.preventDefault(); zoom(Math.exp(e.deltaY * 0.0022)); }, { passive: false });

const grip = $("grip"), dock = $("dock");
grip.addEventListener("pointerdown", (e) => grip.setPointerCapture(e.pointerId));
grip.addEventListener("pointermove", (e) => { if (grip.hasPointerCapture(e.pointerId)) { dock.style.height = Math.max(60, Math.min(innerHeight - 240, innerHeight - e.clientY)) + "px"; resize(); } });
grip.addEventListener("keydown", (e) => { const d = e.key === "ArrowUp" ? 24 : e.key === "ArrowDown" ? -24 : 0; if (d) { dock.style.height = Math.max(60, dock.offsetHeight + d) + "px"; resize(); e.preventDefault(); e.stopPropagation(); } });

function beside(d) {
  if (picked < 0) return;
  const row = rows[E.row[picked]], i = picked + d;
  if (i >= row.first && i < row.first + row.n) { pick(i); reveal(i); }
}
function clear() {
  range = null; finding = null; setOnly(-1); pick(-1); $("search").value = ""; find("");
  setTab(tab);
}
function intoSelection() {
  if (range) show(range.from, range.to);
  else if (picked >= 0) reveal(picked, true);
}
const keys = {
  w: () => zoom(0.75), s: () => zoom(1 / 0.75), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), a: () => pan(-0.15), d: () => pan(0.15),
  ArrowLeft: () => pan(-0.08), ArrowRight: () => pan(0.08), ArrowUp: () => { view.y -= 40; redraw(false); }, ArrowDown: () => { view.y += 40; redraw(false); },
  g: showSteps, f: fit, 0: fit, Home: fit, z: intoSelection, "/": () => { $("search").focus(); $("search").select(); }, n: () => step(1), N: () => step(-1), t: () => setTab(tab === "table" ? "range" : "table"),
  "?": () => $("helpbox").showModal(), Escape: clear, ",": () => beside(-1), ".": () => beside(1), l: () => { if (picked >= 0 && links.length) { const o = related(picked)[0]; pick(o); reveal(o); } } };
addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || $("helpbox").open) return;
  if (e.target === $("search")) {
    if (e.key === "Enter") { step(e.shiftKey ? -1 : 1); e.preventDefault(); }
    if (e.key === "Escape") { $("search").value = ""; find(""); chart.focus(); }
    return;
  }
  if ((e.target === $("scroll") || e.target.getAttribute?.("role") === "tab") && e.key.startsWith("Arrow")) return;
  if (Object.hasOwn(keys, e.key)) { keys[e.key](); e.preventDefault(); }
});
let typing = 0;
$("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => find($("search").value), total > 2e5 ? 200 : 60); });
$("next").onclick = () => step(1);
$("previous").onclick = () => step(-1);
$("in").onclick = () => zoom(0.6);
$("out").onclick = () => zoom(1 / 0.6);
$("fit").onclick = fit;
$("steps").onclick = showSteps;
$("steps").hidden = !placed;
if (!story.steps) { $("steps").textContent = "Work"; $("steps").title = "Show all that the GPU did, or all ranges (g)"; }
$("into").onclick = intoSelection;
$("help").onclick = () => $("helpbox").showModal();
for (const t of Object.keys(panels)) $("tab-" + t).onclick = () => setTab(t);
$("tabs").addEventListener("keydown", (e) => {
  const all = Object.keys(panels), d = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
  if (d) { setTab(all[(all.indexOf(tab) + d + all.length) % all.length]); $("tab-" + tab).focus(); }
});
let scrolling = false;
$("scroll").addEventListener("scroll", () => { if (!scrolling) { scrolling = true; requestAnimationFrame(() => { scrolling = false; drawCells(); }); } });

media.addEventListener("change", () => { setTheme(); redraw(false); });
new ResizeObserver(resize).observe($("stage"));

(async () => {
  setTheme();
  summary();
  tell();
  await load();
  legend();
  drawHeads();
  listRows();
  foldIdle();
  layOut();
  ready = true;
  resize();
  $("loading").hidden = true;
  $("empty").hidden = total > 0;
  showSteps();
  tab = about.findings.some((f) => f.verdict === "found") ? "findings" : "range";
  initial = { from: Math.round(view.from), to: Math.round(view.to), tab };
  openAt();
  draw();
  root.dataset.events = String(total);
  root.dataset.ms = String(Math.round(performance.now() - began));
  window.millrace = { E, rows, about, lanes, rates, rateIn, show, find, pick, view, groups: () => items.filter((m) => m.type === "group").map((m) => m.text) };
  window.millraceReady = true;
  root.dataset.ready = "true";
})();
