/* The head: sums, notes, the verdict, a bar of where a step's time goes, and the legends. */

function summary() {
  const busy = lanes.filter((l) => l.kind === "engine" && l.engine === 0).map((l) => l.busy / (whole.to - whole.from));
  const tiles = [[span(whole.to - whole.from), "recorded"]];
  if (story.steps) tiles.push([span(story.wall / story.steps), "a step (" + count(story.steps) + ")"]);
  else if (busy.length) tiles.push([share(busy.reduce((a, b) => a + b, 0) / busy.length), busy.length > 1 ? "GPUs busy of it (" + busy.length + ")" : "GPU busy of it"]);
  tiles.push([count(shapes[0].count + shapes[15].count), "kernels"]);
  if (shapes[1].count) tiles.push([size(shapes[1].bytes), count(shapes[1].count) + " copies H2D"]);
  if (shapes[2].count) tiles.push([size(shapes[2].bytes), count(shapes[2].count) + " copies D2H"]);
  const memory = counters.filter((c) => c.unit === "bytes" && c.device >= 0).sort((a, b) => b.most - a.most)[0];
  if (memory && memory.most > 0) tiles.push([size(memory.most), "peak memory"]);
  tiles.push([count(about.events), "events"]);
  $("tiles").replaceChildren(...tiles.map(([b, s]) => element("li", {}, element("b", {}, b), element("span", {}, s))));
  if (about.notes.length) {
    $("notes").hidden = false;
    $("notes").firstElementChild.textContent = "⚠ " + about.notes[0] + (about.notes.length > 1 ? "  (and " + (about.notes.length - 1) + " more)" : "");
    $("notes").lastElementChild.replaceChildren(...about.notes.map((n) => element("li", {}, n)));
  }
  chart.setAttribute("aria-label", "Timeline of " + about.title + ": " + tiles.map(([b, s]) => b + " " + s).join(", ") + ". The Table tab has all events as text.");
}

/* A class of idle time has the colour of the events it is of, where there are such; none has that
 * of another thing. */
function partsOf() {
  const of = { communication: 15, "copy calls": 8, "read-back or synchronization": 9, "allocation and loading of code": 10, "launch overhead": 7, "operating system": 14 };
  const own = { "switch between processes": 0, "host code": 1, unexplained: 2 };
  const colour = (name) => name in of ? theme.shapes[of[name]] : theme.idle[own[name] ?? 2];
  const classes = story.idle_classes.map((c) => [c.name, c.share, colour(c.name)]).sort((a, b) => b[1] - a[1]);
  return [["compute", story.compute, theme.shapes[0]], ["communication", story.communication, theme.shapes[15]], ["copies", story.copy, theme.parts.copies], ["other processes", story.others, theme.parts.others],
    ["waits for data", story.loader, theme.parts.wait], ...(classes.length ? classes.map(([name, p, c]) => ["idle: " + name, p, c]) : [["idle", story.idle, theme.idle[2]]])].filter(([, p]) => p >= 0.0005);
}
/* The answer in words, and a bar of where a step's time goes: each part is in its legend. */
function tell() {
  const parts = story.wall ? partsOf() : [], of = story.steps ? "the step" : "the time";
  const percent = (p) => (100 * p).toFixed(p < 0.0995 ? 1 : 0) + "%";
  $("story").hidden = !story.verdict;
  $("verdict").textContent = story.verdict.replace(/--(?=\w)/g, "\u2011\u2011");
  $("verdict").className = story.data_bound ? "bad" : "";
  $("split").hidden = !parts.length;
  $("parts").replaceChildren(...parts.map(([name, p, colour]) => {
    const part = element("span", { title: name + " " + percent(p) + " of " + of });
    part.style.flex = p + " 0 0";
    part.style.background = colour;
    return part;
  }));
  $("partnames").replaceChildren(...parts.map(([name, p, colour]) => element("li", {}, swatch(colour), name + " " + percent(p))));
  $("parts").setAttribute("aria-label", (story.steps ? "A step's time: " : "Time: ") + parts.map(([name, p]) => name + " " + percent(p)).join(", "));
}
function legend() {
  const seen = shapes.map((s, k) => [s, k]).filter(([s]) => s.count);
  $("legend").replaceChildren(...seen.map(([s, k]) => element("li", {}, swatch(k === 12 ? theme.ranges[0] : theme.shapes[k]), k === 12 ? "NVTX range" : s.name)));
}
