/* How busy a device is, and what it copies, over time: from the exact intervals of its engines, at
 * the view's own resolution. A column of n pixels costs n searches, however many events there are. */

const rates = []; /* {name, unit, device, row, sum: bytes or ns before each event of the row} */

function makeRates() {
  const names = ["GPU busy", "H2D rate", "", "D2H rate"];
  for (const lane of lanes) {
    if (lane.kind !== "engine" || !names[lane.engine] || !lane.rows.length) continue;
    const row = lane.rows[0], busy = lane.engine === 0, sum = new Float64Array(row.n + 1);
    for (let i = 0; i < row.n; i++) {
      const k = row.first + i;
      sum[i + 1] = sum[i] + (busy ? E.end[k] - E.start[k] : E.bytes[k]);
    }
    if (!sum[row.n]) continue;
    rates.push({ name: names[lane.engine], unit: busy ? "%" : "bytes/s", device: lane.device, row, sum });
  }
}

/* Bytes or ns before t. at: where the last search ended; t only grows. */
function amountBefore(c, t, at) {
  const { first, n } = c.row;
  at.k = reach(E.start, t, at.k, first + n);
  while (at.k < first + n && E.start[at.k] < t) at.k++;
  if (at.k === first) return 0;
  const i = at.k - 1, long = E.end[i] - E.start[i];
  const part = long > 0 ? Math.min(1, (t - E.start[i]) / long) : 1;
  return c.sum[i - first] + part * (c.sum[i + 1 - first] - c.sum[i - first]);
}

/* The mean in each of n equal parts of [from, to). */
function rateIn(c, from, to, n) {
  const out = new Float64Array(n), each = (to - from) / n, at = { k: c.row.first };
  const scale = (c.unit === "%" ? 100 : 1e9) / each;
  let before = amountBefore(c, from, at);
  for (let i = 0; i < n; i++) {
    const now = amountBefore(c, from + (i + 1) * each, at);
    out[i] = Math.max(0, now - before) * scale;
    before = now;
  }
  return out;
}

/* Draws a rate into a lane of the chart or of the overview. Returns the largest value seen. */
function drawRate(c, y, h, left, right, from, to, ctx, colour) {
  const n = Math.max(1, Math.round(right - left)), values = rateIn(c, from, to, n);
  let most = 0;
  for (const v of values) if (v > most) most = v;
  const base = y + h - 3, high = h - 8, full = c.unit === "%" ? 100 : most || 1;
  ctx.beginPath();
  ctx.moveTo(left, base);
  for (let i = 0; i < n; i++) {
    const top = base - Math.min(1, values[i] / full) * high;
    ctx.lineTo(left + i, top);
    ctx.lineTo(left + i + 1, top);
  }
  ctx.lineTo(right, base);
  ctx.closePath();
  ctx.globalAlpha = 0.28; ctx.fillStyle = colour; ctx.fill();
  ctx.globalAlpha = 0.9; ctx.strokeStyle = colour; ctx.lineWidth = 1; ctx.stroke();
  ctx.globalAlpha = 1;
  return most;
}
