// The page of `tradewind watch`: keeps what /news tells of each run, and shows one of them. Nothing that comes from a run
// is ever read as markup: all of it goes through textContent.
"use strict";

const $ = (id) => document.getElementById(id);
const TOKEN = new URLSearchParams(location.search).get("token") || "";
const LINES_MAX = 8; // groups that have a line of their own in a chart
const EVENTS_SHOWN = 400;
const TEXT_LINES_MAX = 3000;
const INCIDENTS_SHOWN = 5;
const INCIDENT_SECONDS = 10; // what follows a fault so soon belongs to it
const BEGINS = ["process_died", "process_killed", "server_lost", "rank_lost"];
const PARTS = ["computing", "waiting for data", "reducing", "exchanging", "held back", "for nothing", "no step"];
const MEANING = {
  "computing": "forward and backward of gradients that were applied",
  "waiting for data": "the next batch was not there yet",
  "reducing": "averaging inside a group, as far as backward did not hide it",
  "exchanging": "standing still for the push to servers and the pull from them",
  "held back": "waiting for slower groups, as the consistency policy asks",
  "for nothing": "gradients that were skipped, left out, or computed again after a resume",
  "no step": "processes that started, died, or formed their group",
};
const COLUMNS = {
  "lag": "how far the group is behind: exchanges that it has made less than the fastest one",
  "delay": "how old the parameters were that its last gradient was computed on: updates since it had pulled them",
  "step": "seconds from one exchange to the next, with all waiting",
  "own work": "the same without what the group is held back for slower ones: the slowest group has the most",
  "life": "how often it was started",
  "answers for": "shards that groups exchange with this server",
  "lease": "until when it counts as there if it stays silent",
};

// ---- what is kept ----------------------------------------------------------------------------------------------------

const runs = []; // by number: {look, joined, curves: Map, events, validations, files, skew}
let shown = 0;   // the run that is shown
let axis = stored("axis", ["wall", "samples", "updates"]);
let isLog = stored("log", ["no", "yes"]) === "yes";
let which = stored("which", ["all", "faults"]);
let themeChoice = stored("theme", ["auto", "dark", "light"]);
const opened = new Set();   // groups whose ranks are shown
const chosen = new Set();   // groups that were asked for a line
let told = 0;               // messages so far

function stored(key, values) {
  let value = null;
  try { value = localStorage.getItem("tradewind-" + key); } catch { /* a browser without a memory */ }
  return values.includes(value) ? value : values[0];
}
function keep(key, value) {
  try { localStorage.setItem("tradewind-" + key, value); } catch { /* the same */ }
}

function takeIn(news) {
  for (const piece of news.runs) {
    if (piece.new || !runs[piece.run]) {
      runs[piece.run] = { curves: new Map(), events: [], validations: [], files: [], joined: columns(), isNew: true };
    }
    const run = runs[piece.run];
    run.look = piece.look;
    run.skew = Date.now() / 1000 - piece.look.now;
    if (piece.joined) run.joined = piece.joined;
    for (const { group, from, points } of piece.curves) {
      const curve = from === 0 ? columns() : run.curves.get(group);
      for (const name in points) curve[name] = curve[name].slice(0, from).concat(points[name]);
      run.curves.set(group, curve);
    }
    run.events = run.events.concat(piece.events).slice(-1000);
    run.hasEvents = piece.events.length > 0 || run.hasEvents;
    run.validations = run.validations.concat(piece.validations);
    if (piece.files) run.files = piece.files;
    run.changed = true;
  }
  told += 1;
}
const columns = () => ({ wall: [], samples: [], updates: [], loss: [], lag: [], delay: [] });

// ---- words and numbers -----------------------------------------------------------------------------------------------

const DASH = "–";
function number(x, digits = 4) {
  if (x === null || x === undefined || !Number.isFinite(x)) return DASH;
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e15 || size < 1e-4) return x.toExponential(2);
  if (Number.isInteger(x) || size >= 10 ** digits) return Math.round(x).toLocaleString("en-US");
  return Number(x.toPrecision(digits)).toString();
}
function seconds(s) {
  if (s === null || s === undefined || !Number.isFinite(s)) return DASH;
  const size = Math.abs(s);
  if (size < 0.00095) return size === 0 ? "0 s" : (s * 1000).toFixed(2) + " ms";
  if (size < 0.9995) return (s * 1000).toFixed(0) + " ms";
  if (size < 9.95) return s.toFixed(1) + " s";
  if (size < 119.5) return s.toFixed(0) + " s";
  if (size < 7200) return (s / 60).toFixed(0) + " min";
  if (size < 172800) return (s / 3600).toFixed(1) + " h";
  return (s / 86400).toFixed(1) + " days";
}
/** A moment of a run, as a clock has it: 1:02:03. */
function moment(s) {
  const sign = s < 0 ? "−" : "", t = Math.round(Math.abs(s));
  const two = (n) => String(n).padStart(2, "0");
  const h = Math.floor(t / 3600), m = Math.floor(t / 60) % 60;
  return sign + (h ? h + ":" + two(m) : m) + ":" + two(t % 60);
}
function bytes(n) {
  if (n === null || n === undefined) return DASH;
  let at = 0;
  const units = ["B", "kB", "MB", "GB", "TB"];
  while (n >= 1000 && at < units.length - 1) { n /= 1000; at += 1; }
  return (at && n < 100 ? n.toPrecision(3) : Math.round(n)) + " " + units[at];
}
const percent = (part, digits = 0) => part === null || part === undefined ? DASH : (100 * part).toFixed(digits) + " %";
const clock = (wall) => new Date(wall * 1000).toLocaleTimeString();
const measured = (m) => m ? number(m.value) + (m.unit ? " " + m.unit : "") : DASH;

/** An element: el("td", {class: "n"}, "text", child, …). */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const name in attributes) {
    if (name === "style") Object.assign(made.style, attributes.style);
    else if (attributes[name] !== null && attributes[name] !== undefined && attributes[name] !== false) {
      made.setAttribute(name, attributes[name]);
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
function text(id, value) {
  const place = $(id);
  if (place.textContent !== value) place.textContent = value;
}
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- charts ----------------------------------------------------------------------------------------------------------

/** Seconds between two ticks of a clock. */
const MOMENTS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

class Chart {
  /** `y` says how values are written, `marks` whether events are drawn, `small` that values stand in the title. */
  constructor(id, { y = (v) => number(v, 5), marks = false, log = false, small = false } = {}) {
    Object.assign(this, { place: $(id), y, marks, log, small, plot: null, shape: "" });
    if (small) {
      this.title = this.place.parentNode.querySelector("small");
      this.said = this.title.textContent;
    }
    new ResizeObserver(() => this.resize()).observe(this.place);
  }

  /** `lines`: {label, colour, width, x: [], y: []} each, x rising. */
  show(lines, along) {
    lines = lines.filter((line) => line.x.length > 0);
    this.place.classList.toggle("empty", lines.length === 0);
    if (lines.length === 0) {
      if (this.plot) { this.plot.destroy(); this.plot = null; }
      this.shape = "";
      if (!this.place.textContent) this.place.textContent = "nothing yet";
      return;
    }
    const isLog = this.log && along.log;
    const fit = (values) => isLog ? values.map((v) => (v > 0 ? v : null)) : values;
    const data = lines.length === 1 ? [lines[0].x, fit(lines[0].y)]
      : uPlot.join(lines.map((line) => [line.x, fit(line.y)]));
    const shape = JSON.stringify([lines.map((line) => [line.label, line.colour, line.width]), along.axis, isLog, along.theme]);
    if (shape === this.shape && this.plot) {
      // Whoever has zoomed in keeps what they look at.
      const { min, max } = this.plot.scales.x, all = this.plot.data[0];
      const zoomed = min > all[0] || max < all[all.length - 1];
      this.plot.setData(data, !zoomed);
      if (zoomed) this.plot.redraw();
      return;
    }
    if (this.plot) this.plot.destroy();
    this.place.textContent = "";
    this.shape = shape;
    const quiet = colour("--quiet"), grid = colour("--grid");
    const ticks = { stroke: quiet, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "11px system-ui, DejaVu Sans, sans-serif" };
    const x = (v) => along.axis === "wall" ? moment(v) : number(v, 6);
    const hooks = { ready: [(plot) => requestAnimationFrame(() => { if (plot === this.plot) this.resize(); })] };
    if (this.marks) Object.assign(hooks, { draw: [drawMarks], setCursor: [tellNear] });
    if (this.small) hooks.setCursor = [(plot) => this.tell(plot, lines, x)];
    this.plot = new uPlot({
      ...this.size(),
      scales: { x: { time: false }, y: { distr: isLog ? 3 : 1 } },
      axes: [
        { ...ticks, values: (_, all) => all.map(x), space: along.axis === "wall" ? 50 : 70, ...(along.axis === "wall" ? { incrs: MOMENTS } : {}) },
        { ...ticks, values: (_, all) => all.map((v) => (v === null ? "" : this.y(v))), size: 58 },
      ],
      series: [
        { label: { wall: "time", samples: "samples", updates: "updates" }[along.axis], value: (_, v) => (v === null ? DASH : x(v)) },
        ...lines.map((line) => ({
          label: line.label, stroke: line.colour, width: line.width || 1.25, spanGaps: true, points: { show: line.x.length < 30, size: 4 },
          value: (_, v) => (v === null || v === undefined ? DASH : this.y(v)),
        })),
      ],
      legend: { show: !this.small },
      cursor: { drag: { x: true, y: false }, points: { size: 6 } },
      hooks,
    }, data, this.place);
  }

  size() {
    return { width: Math.max(160, this.place.clientWidth), height: this.place.clientHeight };
  }

  /** The values at the pointer, in the place of the title's second half. */
  tell(plot, lines, x) {
    const at = plot.cursor.idx;
    let said = this.said;
    if (at !== null && at !== undefined && plot.cursor.left >= 0) {
      const value = (line) => plot.data[line + 1][at];
      const told = lines.map((line, n) => (value(n) === null || value(n) === undefined ? null
        : (lines.length > 1 ? line.label + " " : "") + this.y(value(n)))).filter(Boolean);
      said = `at ${x(plot.data[0][at])}: ${told.join(", ")}`;
    }
    if (this.title.textContent !== said) this.title.textContent = said;
  }

  resize() {
    if (!this.plot) return;
    const legend = this.place.querySelector(".u-legend");
    const height = Math.max(110, this.place.clientHeight - (legend ? legend.offsetHeight : 0));
    const width = Math.max(160, this.place.clientWidth);
    if (width !== this.plot.width || height !== this.plot.height) this.plot.setSize({ width, height });
  }
}

/** Where a moment lies on the axis that is shown. */
function along(run, wall) {
  if (axis === "wall") return wall - run.look.begun;
  const { wall: walls, [axis]: values } = run.joined;
  let low = 0, high = walls.length;
  while (low < high) { const middle = (low + high) >> 1; if (walls[middle] <= wall) low = middle + 1; else high = middle; }
  return low === 0 ? 0 : values[low - 1];
}

const markColour = (event) => event.mended ? "--good" : event.fault ? "--bad" : event.kind === "snapshot" ? "--accent" : null;
const MARKS = ["--accent", "--good", "--bad"]; // a later one is drawn above an earlier one, and told before it

/** The events that have a mark, faults last: what mended one comes so soon after it that it would cover it. */
function marks(run) {
  const order = (event) => MARKS.indexOf(markColour(event));
  return run.events.filter(markColour).sort((a, b) => order(a) - order(b));
}

function drawMarks(plot) {
  const run = runs[shown];
  if (!run || run.look.begun === null) return;
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const scale = devicePixelRatio;
  for (const event of marks(run)) {
    const name = markColour(event);
    const at = Math.round(plot.valToPos(along(run, event.wall), "x", true)) + 0.5;
    if (at < bbox.left || at > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = colour(name);
    ctx.lineWidth = scale;
    const isSnapshot = name === "--accent";
    ctx.globalAlpha = isSnapshot ? 0.9 : 0.45;
    ctx.beginPath();
    ctx.moveTo(at, isSnapshot ? bbox.top + bbox.height - 6 * scale : bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
    if (!isSnapshot) {
      ctx.globalAlpha = 1;
      ctx.beginPath();
      // What mended a fault stands below it, so that both are seen.
      ctx.arc(at, bbox.top + (name === "--bad" ? 4 : 11) * scale, 3 * scale, 0, 2 * Math.PI);
      ctx.fill();
    }
  }
  ctx.restore();
}

/** Says which event the pointer is at. */
function tellNear(plot) {
  const run = runs[shown], place = $("near");
  const at = plot.cursor.left;
  let best = null, distance = 7;
  if (run && at >= 0 && run.look.begun !== null) {
    for (const event of marks(run)) {
      const away = Math.round(Math.abs(plot.valToPos(along(run, event.wall), "x") - at));
      if (away <= distance) { best = event; distance = away; }
    }
  }
  place.textContent = best ? moment(best.wall - run.look.begun) + "  " + best.text : "";
  place.className = best ? (best.mended ? "mended" : best.fault ? "fault" : "quiet") : "quiet";
  if (!best && run && run.events.some(markColour)) legendOfMarks(place);
}
function legendOfMarks(place) {
  place.textContent = "";
  const dot = (name) => el("i", { class: "key", style: { background: `var(${name})`, borderRadius: "50%", marginLeft: "12px" } });
  place.append("Marks: ", dot("--bad"), "what died or was lost", dot("--good"), "how it was mended", dot("--accent"), "snapshots. Point at one to read it.");
}

const charts = {
  compare: new Chart("compare", { log: true }),
  loss: new Chart("loss", { marks: true, log: true }),
  rate: new Chart("rate", { y: (v) => number(v, 3), small: true }),
  lag: new Chart("lag", { y: (v) => number(v, 3), small: true }),
  delay: new Chart("delay", { y: (v) => number(v, 3), small: true }),
  validation: new Chart("validation", { small: true }),
};

/** The horizontal axis of a curve: rising, whatever the order in which groups wrote. */
function xs(run, curve) {
  if (axis === "wall") return curve.wall.map((wall) => wall - run.look.begun);
  let most = 0;
  return curve[axis].map((value) => (most = Math.max(most, value)));
}

/** Groups that have a line of their own. */
function lined(run) {
  const all = [...run.curves.keys()].sort((a, b) => a - b);
  const asked = all.filter((group) => chosen.has(group));
  return asked.length ? asked : all.slice(0, LINES_MAX);
}
const lineColour = (at) => colour("--c" + (at % 8));

function showCurves(run) {
  const how = { axis, log: isLog, theme: document.documentElement.dataset.theme };
  const groups = lined(run);
  const all = run.look.groups.map((row) => row.group);
  const line = (group, of, how = (values) => values) => {
    const curve = run.curves.get(group);
    return { label: "group " + group, colour: lineColour(all.indexOf(group)), x: xs(run, curve), y: how(curve[of]) };
  };
  const mean = { label: groups.length < run.curves.size ? `all ${run.curves.size} groups` : "all groups",
    colour: colour("--ink"), width: 2, x: xs(run, run.joined), y: smooth(run.joined.loss) };
  const own = groups.map((group) => line(group, "loss"));
  charts.loss.show(run.curves.size > 1 ? [...own, mean] : own, how);
  charts.lag.show(groups.map((group) => line(group, "lag")), how);
  charts.delay.show(groups.map((group) => line(group, "delay", smooth)), how);
  charts.rate.show([{ label: "samples a second", colour: colour("--accent"), width: 1.5, ...rates(run) }], how);
  const validations = run.validations.map(([samples, wall, value]) => ({ samples, wall, updates: 0, value }));
  $("validation-card").hidden = validations.length === 0;
  if (validations.length) {
    const x = validations.map((v) => (axis === "wall" ? v.wall - run.look.begun : axis === "samples" ? v.samples : along(run, v.wall)));
    const what = run.look.validation;
    text("validation-name", what.name[0].toUpperCase() + what.name.slice(1) + (what.unit ? ` (${what.unit})` : ""));
    charts.validation.show([{ label: what.name, colour: colour("--c2"), width: 1.5, x, y: validations.map((v) => v.value) }], how);
  }
  if (!$("near").textContent && run.events.some(markColour)) legendOfMarks($("near"));
}

/** A moving mean over a fiftieth of the points, so that the course is seen through the noise. */
function smooth(values) {
  const span = Math.max(1, Math.round(values.length / 50));
  const kept = [];
  let sum = 0, count = 0;
  return values.map((value) => {
    kept.push(value);
    if (value !== null) { sum += value; count += 1; }
    if (kept.length > span) { const old = kept.shift(); if (old !== null) { sum -= old; count -= 1; } }
    return count ? sum / count : null;
  });
}

/** Samples applied a second, over a hundredth of the curve each. */
function rates(run) {
  const { wall, samples } = run.joined, at = xs(run, run.joined);
  const span = Math.max(1, Math.round(wall.length / 60));
  const x = [], y = [];
  let before = samples.length ? samples[0] : 0;
  for (let i = span; i < wall.length; i += Math.max(1, span >> 1)) {
    const gone = wall[i] - wall[i - span];
    before = Math.max(before, samples[i]);
    if (gone > 0) { x.push(at[i]); y.push(Math.max(0, samples[i] - samples[i - span]) / gone); }
  }
  return { x, y };
}

function showHistogram(delays) {
  const place = $("histogram");
  const most = Math.max(0, ...delays), all = delays.reduce((a, b) => a + b, 0);
  place.classList.toggle("empty", most === 0);
  if (most === 0) { place.textContent = "nothing yet"; return; }
  // As many bars as can be told apart.
  const per = Math.ceil(delays.length / 48), bars = [];
  for (let from = 0; from < delays.length; from += per) {
    bars.push([from, Math.min(from + per, delays.length) - 1, delays.slice(from, from + per).reduce((a, b) => a + b, 0)]);
  }
  const top = Math.max(...bars.map((bar) => bar[2])), every = Math.ceil(bars.length / 12);
  place.replaceChildren(...bars.map(([from, to, count], at) => {
    const name = (from === to ? String(from) : from + " to " + to) + (to === 255 ? " or more" : "");
    const share = percent(count / all, count / all < 0.1 ? 1 : 0);
    return el("div", { title: `delay ${name}: ${number(count)} exchanges, ${share}` },
      bars.length <= 10 ? el("b", {}, share) : null,
      el("i", { style: { height: `calc(${(100 * count) / top}% - ${bars.length <= 10 ? 18 : 0}px)` } }),
      at % every === 0 ? el("span", {}, String(from)) : null);
  }));
}

// ---- tables ----------------------------------------------------------------------------------------------------------

/** Rows are made anew only where they have changed, so that what is selected or focused stays. */
function table(id, heads, rows) {
  const place = $(id);
  if (rows.length === 0) { place.replaceChildren(); return; }
  const head = heads.join("|");
  if (place.dataset.heads !== head || !place.tBodies.length) {
    place.dataset.heads = head;
    const cells = heads.map((name) => el("th", { class: name.startsWith(">") ? "n" : null, scope: "col", title: COLUMNS[name.replace(/^>/, "")] || null }, name.replace(/^>/, "")));
    place.replaceChildren(el("thead", {}, el("tr", {}, ...cells)), el("tbody"));
  }
  const body = place.tBodies[0];
  rows.forEach((row, at) => {
    const key = JSON.stringify([row.key, row.cells.map((cell) => (cell && cell.key !== undefined ? cell.key : cell)), row.class]);
    const old = body.rows[at];
    if (old && old.dataset.key === key) return;
    const cells = row.cells.map((cell, column) => {
      const is = cell !== null && typeof cell === "object" ? cell : { text: cell };
      const tone = [heads[column].startsWith(">") ? "n" : "", is.tone || ""].join(" ").trim();
      return el("td", { class: tone || null, title: is.title || null, colspan: is.span || null }, is.node ? is.node() : is.text ?? "");
    });
    const made = el("tr", { class: row.class || null, tabindex: row.open ? 0 : null, "aria-expanded": row.expanded === undefined ? null : String(row.expanded) }, ...cells);
    made.dataset.key = key;
    if (row.open) {
      made.addEventListener("click", row.open);
      made.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); row.open(); } });
    }
    if (!old) { body.append(made); return; }
    const hadFocus = document.activeElement === old;
    old.replaceWith(made);
    if (hadFocus) made.focus();
  });
  while (body.rows.length > rows.length) body.lastChild.remove();
}

const ago = (run, wall) => wall === null || wall === undefined ? DASH : seconds(Math.max(0, run.look.now - wall)) + " ago";

function miniBar(times) {
  const parts = [times.computing, times.reading, times.reducing, times.exchanging, times.waiting];
  const all = parts.reduce((a, b) => a + b, 0);
  const told = parts.map((part, at) => `${PARTS[at]} ${percent(part / all)}`).join(", ");
  return { key: parts.map((part) => Math.round((100 * part) / all)).join(), title: told,
    node: () => el("div", { class: "stack mini" }, ...parts.map((part, at) => el("i", { style: { width: `${(100 * part) / all}%`, background: `var(--p${at})` } }))) };
}

/** What a step takes of a group that waits for no other. */
function ownWork(row) {
  if (!row.times || row.step_seconds === null) return DASH;
  const { computing, reading, reducing, exchanging, waiting } = row.times;
  const own = computing + reading + reducing + exchanging;
  return own + waiting > 0 ? seconds((row.step_seconds * own) / (own + waiting)) : DASH;
}

function showGroups(run) {
  const { look } = run;
  const all = look.groups.map((row) => row.group);
  const hasGpu = look.groups.some((row) => row.gpu), width = hasGpu ? 13 : 12;
  const rows = [];
  for (const row of look.groups) {
    const at = all.indexOf(row.group), isOpen = opened.has(row.group);
    const isLined = lined(run).includes(row.group);
    const bound = look.staleness_bound;
    const toggle = () => { if (isOpen) opened.delete(row.group); else opened.add(row.group); showGroups(run); };
    rows.push({
      key: row.group, class: "opens", open: toggle, expanded: isOpen,
      cells: [
        { key: [row.group, isOpen, isLined, document.documentElement.dataset.theme].join(), node: () => el("span", {},
          el("span", { class: "key", style: { background: isLined ? `var(--c${at % 8})` : "var(--line)" } }), (isOpen ? "▾ " : "▸ ") + row.group) },
        { text: row.does.text, tone: row.does.tone },
        row.times ? miniBar(row.times) : "",
        `${row.ranks.length || row.size} of ${row.size}`,
        number(row.clock),
        { text: number(row.lag), tone: bound !== null && row.lag > bound ? "warn" : "" },
        number(row.delay), number(row.loss), number(row.samples_per_second, 3), seconds(row.step_seconds), ownWork(row),
        run.look.over ? (row.latest === null ? DASH : moment(row.latest - look.begun)) : ago(run, row.latest),
        ...(!hasGpu ? [] : [row.gpu ? { text: `${percent(row.gpu.utilization)}, ${bytes(row.gpu.device_memory_bytes)}`, title: `of ${bytes(row.gpu.device_memory_bytes_total)}` } : DASH]),
      ],
    });
    if (!isOpen) continue;
    rows.push({ key: "line" + row.group, class: "inner", cells: [{ span: width, key: [row.group, isLined, chosen.has(row.group)].join(),
      node: () => { const button = el("button", {}, chosen.has(row.group) ? "no line of its own" : "show only chosen groups in curves: this one");
        button.addEventListener("click", () => { if (chosen.has(row.group)) chosen.delete(row.group); else chosen.add(row.group); showAll(true); }); return button; } }] });
    for (const rank of row.ranks) {
      const lease = rank.lease_left_ms === null ? "" : `, lease ${seconds(rank.lease_left_ms / 1000)}`;
      rows.push({ key: [row.group, rank.rank].join(), class: "inner", cells: [
        "rank " + rank.rank,
        { span: width - 1, text: [rank.host, rank.pid ? "process " + rank.pid : null, rank.life > 1 ? `started ${rank.life} times` : null,
          rank.clock === null ? null : "clock " + number(rank.clock)].filter(Boolean).join(", ") + lease } ] });
    }
    if (!row.ranks.length) rows.push({ key: "none" + row.group, class: "inner", cells: [{ span: width, text: "its ranks are not known here" }] });
  }
  table("groups", ["group", "doing", "last exchanges", ">ranks", ">exchanges", ">lag", ">delay", ">loss", ">samples/s", ">step", ">own work", look.over ? ">last at" : ">last", ...(hasGpu ? [">GPU"] : [])], rows);
  $("groups-section").hidden = rows.length === 0;
}

function showServers(run) {
  const { look } = run;
  const rate = (traffic, of) => (traffic ? bytes(traffic[of]) + "/s" : DASH);
  const now = (...cells) => (look.over ? [] : cells); // nothing is measured any more when a run has ended
  table("servers", ["server", "state", ">life", "answers for", "copies of", ...now(">pushed to it", ">pulled from it", ">memory", ">lease"), "address"],
    look.servers.map((row) => ({ key: row.server, cells: [
      String(row.server), { text: row.state, tone: row.state === "up" ? "good" : row.state === "gone" ? "bad" : "" }, number(row.life),
      row.primary_of.length ? "shard " + row.primary_of.join(", ") : DASH, row.copy_of.length ? "shard " + row.copy_of.join(", ") : DASH,
      ...now(rate(row.traffic, "pushed"), rate(row.traffic, "pulled"), bytes(row.memory_bytes),
        row.lease_left_ms === null ? DASH : seconds(row.lease_left_ms / 1000)), row.address || DASH ] })));
  table("shards", ["shard", "primary", "copies", ">size", ">versions", ...now(">pushed", ">pulled", "waits for")],
    look.shards.map((row) => ({ key: row.shard, cells: [
      String(row.shard), row.primary === null ? { text: "nobody", tone: "bad" } : "server " + row.primary,
      row.copies.length + row.filling.length ? "server " + [...row.copies.map(String), ...row.filling.map((copy) => copy + " (filling)")].join(", ") : DASH,
      bytes(row.bytes), row.version_min === null ? DASH : row.version_min === row.version_max ? number(row.version_min) : `${number(row.version_min)} to ${number(row.version_max)}`,
      ...now(rate(row.traffic, "pushed"), rate(row.traffic, "pulled"), { text: row.waits_for.join("; ") || "", tone: "warn" }) ] })));
  text("coordinator", look.coordinator);
  $("servers-section").hidden = !look.servers.length && !look.shards.length;
}

// ---- the rest of the page --------------------------------------------------------------------------------------------

function tiles(run) {
  const { look } = run;
  const all = [["Loss", number(look.loss), "mean of the last 32 exchanges"]];
  if (look.metric) all.push([look.metric.name, measured(look.metric), look.baselines.map((b) => `${b.name}: ${measured(b)}`).join("\n")]);
  if (look.validation) all.push([look.validation.name, measured(look.validation), ""]);
  all.push(["Samples", percent(look.samples / look.budget), `${number(look.samples)} of ${number(look.budget)}`]);
  all.push(["Updates", number(look.updates), ""]);
  if (!look.over) all.push(["Samples a second", number(look.samples_per_second, 3), ""], ["Time left", seconds(look.seconds_left), ""]);
  if (look.begun !== null) all.push(["Trained for", moment((look.over ? look.latest : look.now) - look.begun), `from ${new Date(look.begun * 1000).toLocaleString()}`]);
  all.push(["Goodput", percent(look.goodput), "the part of all ranks' time in which gradients were computed that were applied"]);
  if (look.snapshot) all.push(["Last snapshot", `no. ${look.snapshot.number}`, look.snapshot.wall ? ago(run, look.snapshot.wall) : ""]);
  if (look.lost && (look.lost.updates || look.lost.samples)) all.push(["Lost", `${number(look.lost.samples)} samples`, `${number(look.lost.updates)} updates of blocks that were acknowledged`]);
  const key = JSON.stringify(all);
  if ($("tiles").dataset.key === key) return;
  $("tiles").dataset.key = key;
  $("tiles").replaceChildren(...all.map(([name, value, more]) => el("div", { title: more || null }, el("dt", {}, name), el("dd", {}, value))));
}

function showHead(run) {
  const { look } = run;
  text("name", look.name);
  text("state", look.state);
  $("state").className = "pill " + (look.tone);
  text("sentence", look.sentence ? look.sentence[0].toUpperCase() + look.sentence.slice(1) + "." : "");
  const how = look.staleness_bound === null ? look.how : `${look.how} (staleness bound ${look.staleness_bound})`;
  text("facts", [how, look.folder, ...look.jobs].join(" · "));
  const part = look.budget ? Math.min(1, look.samples / look.budget) : 0;
  $("bar").firstChild.style.width = percent(part, 2).replace(" ", "");
  $("bar").setAttribute("aria-valuenow", String(Math.round(100 * part)));
  tiles(run);
  document.title = `${look.state === "training" ? percent(part) : look.state} ${look.name} – tradewind`;
}

function showTime(run) {
  const { time } = run.look;
  const all = time.reduce((sum, part) => sum + part.rank_seconds, 0);
  const key = JSON.stringify(time.map((part) => part.rank_seconds.toFixed(1)));
  if ($("time").dataset.key === key) return;
  $("time").dataset.key = key;
  const share = (part) => (all > 0 ? part.rank_seconds / all : 0);
  $("time").replaceChildren(...time.map((part, at) => el("i", { title: `${part.what}: ${percent(share(part), 1)}`, style: { width: `${100 * share(part)}%`, background: `var(--p${at})` } })));
  $("time").setAttribute("aria-label", time.map((part) => `${part.what} ${percent(share(part), 1)}`).join(", "));
  $("time-legend").replaceChildren(...time.map((part, at) => part.rank_seconds <= 0 ? "" : el("li", { title: MEANING[part.what] || null },
    el("i", { style: { background: `var(--p${at})` } }), `${part.what} `, el("b", {}, percent(share(part), 1)), ` ${seconds(part.rank_seconds)}`)));
  if (all > 0) $("time-legend").append(el("li", { class: "quiet" }, `of ${seconds(all)} of all ranks together`));
}

/** Faults with what was done about each. One begins with a process, server or rank that is gone, and has what mended things soon after it. */
function incidents(run) {
  const all = [];
  for (const event of run.events) {
    const last = all[all.length - 1];
    const isSoon = last !== undefined && event.wall - last.until < INCIDENT_SECONDS;
    if (BEGINS.includes(event.kind)) {
      // The launcher tells of a process, and the coordinator of the same server or rank.
      if (isSoon && event.kind !== last.kind && event.server === last.server && event.group === last.group) continue;
      all.push({ begun: event.wall, until: event.wall, kind: event.kind, server: event.server, group: event.group, what: event.text, mended: [] });
    } else if (isSoon && (event.mended || event.kind === "group_formed")) {
      last.until = event.wall;
      last.mended.push(`${event.text} (after ${seconds(event.wall - last.begun)})`);
    }
  }
  return all;
}

function showIncidents(run) {
  const { look } = run;
  const all = incidents(run), rows = all.slice(-INCIDENTS_SHOWN).reverse();
  const items = rows.map((is) => el("li", {},
    el("b", {}, `${clock(is.begun)}${look.begun === null ? "" : `, ${moment(is.begun - look.begun)} into training`}: `),
    [is.what, ...is.mended].join("; ") + "."));
  if (all.length > rows.length) items.push(el("li", { class: "quiet" }, `${number(all.length - rows.length)} before that are among the events.`));
  const lost = look.lost;
  if (all.length && lost) items.push(el("li", {}, lost.updates || lost.samples
    ? `Lost for good: ${number(lost.updates)} updates of blocks and ${number(lost.samples)} samples that servers had acknowledged.`
    : "Nothing that servers had acknowledged was lost."));
  $("incidents").hidden = !items.length;
  $("incidents").replaceChildren(...items);
}

function showEvents(run) {
  const begun = run.look.begun;
  showIncidents(run);
  const all = run.events.filter((event) => which === "all" || event.fault);
  const rows = all.slice(-EVENTS_SHOWN).reverse();
  const items = rows.map((event) => el("li", { class: event.mended ? "mended" : event.fault ? "fault" : event.kind === "snapshot" ? "snapshot" : null, title: event.kind },
    el("time", { title: new Date(event.wall * 1000).toLocaleString() }, clock(event.wall) + (begun === null ? "" : ` · ${moment(event.wall - begun)}`)), el("i"), el("p", {}, event.text)));
  if (!items.length) items.push(el("li", { class: "none" }, which === "faults" ? "no faults" : "nothing yet"));
  else if (all.length > rows.length || run.look.events > run.events.length) items.push(el("li", { class: "none" }, "older ones are in events.jsonl"));
  $("events").replaceChildren(...items);
}

function showRuns() {
  const several = runs.filter(Boolean).length > 1;
  $("runs").hidden = !several;
  const key = JSON.stringify([runs.map((run) => run && run.look.name), shown]);
  if ($("tabs").dataset.key !== key) {
    $("tabs").dataset.key = key;
    $("tabs").replaceChildren(...(several ? runs.map((run, at) => {
      const button = el("button", { class: at === shown ? "on" : null, "aria-pressed": String(at === shown) }, run ? run.look.name : "…");
      button.addEventListener("click", () => choose(at));
      return button;
    }) : []));
  }
  if (!several) return;
  table("runs-table", ["run", "state", ">samples", ">loss", ">validation", ">metric", ">samples/s", ">goodput", ">time left", "how"],
    runs.map((run, at) => ({ run, at })).filter(({ run }) => run).map(({ run, at }) => ({
      key: at, class: "opens" + (at === shown ? " on" : ""), open: () => choose(at),
      cells: [
        { key: [run.look.name, at, document.documentElement.dataset.theme].join(), node: () => el("span", {}, el("span", { class: "key", style: { background: `var(--c${at % 8})` } }), run.look.name) },
        { text: run.look.state, tone: run.look.tone }, percent(run.look.samples / run.look.budget), number(run.look.loss),
        measured(run.look.validation), measured(run.look.metric), number(run.look.samples_per_second, 3), percent(run.look.goodput),
        run.look.over ? DASH : seconds(run.look.seconds_left), run.look.how ],
    })));
  charts.compare.show(runs.map((run, at) => ({ run, at })).filter(({ run }) => run && run.look.begun !== null).map(({ run, at }) => ({
    label: run.look.name, colour: lineColour(at), width: at === shown ? 2.25 : 1.25, x: xs(run, run.joined), y: smooth(run.joined.loss),
  })), { axis, log: isLog, theme: document.documentElement.dataset.theme });
}

function showFiles(run) {
  const names = run.files.map((file) => file.name), place = $("file");
  if (place.dataset.key === JSON.stringify([shown, names])) return;
  place.dataset.key = JSON.stringify([shown, names]);
  const before = place.value;
  place.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
  const first = names.find((name) => name.endsWith("rank-0.log")) || names[names.length - 1] || "";
  place.value = names.includes(before) ? before : first;
  log.open();
}

/** All of the page; `anew` where a setting has changed. */
function showAll(anew = false) {
  const run = runs[shown];
  if (!run) return;
  if (!run.changed && !anew) return;
  run.changed = false;
  for (const button of $("axis").children) button.classList.toggle("on", button.dataset.x === axis);
  for (const button of $("which").children) button.classList.toggle("on", button.dataset.which === which);
  $("log").setAttribute("aria-pressed", String(isLog));
  const by = { wall: "since the first step", samples: "by samples applied", updates: "by updates applied" }[axis];
  for (const place of document.querySelectorAll(".by")) if (place.textContent !== by) place.textContent = by;
  showRuns();
  showHead(run);
  if (run.look.begun !== null || anew) showCurves(run);
  showHistogram(run.look.delays);
  showTime(run);
  showGroups(run);
  showServers(run);
  if (run.hasEvents || anew || run.isNew) showEvents(run);
  run.hasEvents = run.isNew = false;
  showFiles(run);
}

function choose(at) {
  if (!runs[at] || at === shown) return;
  shown = at;
  opened.clear();
  chosen.clear();
  $("near").textContent = "";
  showAll(true);
}

// ---- logs ------------------------------------------------------------------------------------------------------------

const log = {
  to: 0, timer: 0, asked: 0,

  async ask(more) {
    const run = shown, name = $("file").value;
    const address = `runs/${run}/texts/${encodeURIComponent(name)}?token=${encodeURIComponent(TOKEN)}${more}`;
    const answer = await fetch(address);
    if (!answer.ok) throw new Error((await answer.text()).trim());
    return answer.json();
  },

  async open() {
    clearTimeout(this.timer);
    const asked = ++this.asked;
    const place = $("text"), words = $("words").value;
    text("found", "");
    if (!$("file").value) { place.textContent = "no logs yet"; return; }
    try {
      if (words) {
        const found = await this.ask("&search=" + encodeURIComponent(words));
        if (asked !== this.asked) return;
        text("found", found.count === 0 ? "not found" : `${number(found.count)} lines` + (found.count > found.lines.length ? `, the last ${found.lines.length} are shown` : ""));
        place.replaceChildren(...found.lines.flatMap(([line, content]) => [el("span", { class: "number" }, String(line).padStart(6) + "  "), ...marked(content, words), "\n"]));
        return;
      }
      const page = await this.ask("");
      if (asked !== this.asked) return;
      this.to = page.to;
      place.textContent = (page.from > 0 ? "… earlier lines are found by searching\n" : "") + (page.lines.join("\n") || "empty");
      place.scrollTop = place.scrollHeight;
      this.follow(asked);
    } catch (error) {
      if (asked === this.asked) place.textContent = String(error.message || error);
    }
  },

  /** Adds what is written from now on. */
  follow(asked) {
    this.timer = setTimeout(async () => {
      if (asked !== this.asked) return;
      try {
        if (!document.hidden) {
          const page = await this.ask("&from=" + this.to);
          if (asked !== this.asked) return;
          if (page.from !== this.to) { this.open(); return; }
          if (page.lines.length) {
            const place = $("text"), isAtEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
            const lines = ((place.textContent === "empty" ? "" : place.textContent + "\n") + page.lines.join("\n")).split("\n");
            place.textContent = lines.slice(-TEXT_LINES_MAX).join("\n");
            if (isAtEnd) place.scrollTop = place.scrollHeight;
            this.to = page.to;
          }
        }
      } catch { /* the banner says that nobody answers */ }
      this.follow(asked);
    }, 2000);
  },
};

/** A line with the words that were searched for marked. */
function marked(content, words) {
  const parts = [], low = content.toLowerCase(), wanted = words.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(wanted); at >= 0; at = low.indexOf(wanted, from)) {
    parts.push(content.slice(from, at), el("mark", {}, content.slice(at, at + wanted.length)));
    from = at + wanted.length;
  }
  return [...parts, content.slice(from)];
}

// ---- settings, keys, connection --------------------------------------------------------------------------------------

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
function applyTheme() {
  document.documentElement.dataset.theme = themeChoice === "auto" ? (prefersDark.matches ? "dark" : "light") : themeChoice;
  text("theme", themeChoice);
  showAll(true);
}
prefersDark.addEventListener("change", applyTheme);

function setAxis(to) { axis = to; keep("axis", to); showAll(true); }
function setLog() { isLog = !isLog; keep("log", isLog ? "yes" : "no"); showAll(true); }
function setWhich(to) { which = to; keep("which", to); showAll(true); }
function setTheme() {
  themeChoice = { auto: "dark", dark: "light", light: "auto" }[themeChoice];
  keep("theme", themeChoice);
  applyTheme();
}

$("axis").addEventListener("click", (event) => { if (event.target.dataset.x) setAxis(event.target.dataset.x); });
$("which").addEventListener("click", (event) => { if (event.target.dataset.which) setWhich(event.target.dataset.which); });
$("log").addEventListener("click", setLog);
$("theme").addEventListener("click", setTheme);
$("help-open").addEventListener("click", () => $("help").showModal());
$("file").addEventListener("change", () => log.open());
let typing = 0;
$("words").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => log.open(), 250); });

const KEYS = {
  t: () => setAxis("wall"), s: () => setAxis("samples"), u: () => setAxis("updates"), l: setLog, d: setTheme,
  f: () => setWhich(which === "all" ? "faults" : "all"),
  g: () => go("groups-section"), v: () => go("servers-section"), e: () => go("events-section"), o: () => go("logs-section"),
  "[": () => choose(shown - 1), "]": () => choose(shown + 1),
  "/": () => { go("logs-section"); $("words").focus(); }, "?": () => $("help").showModal(),
};
function go(id) { $(id).scrollIntoView({ block: "start" }); }
document.addEventListener("keydown", (event) => {
  const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
  if (event.key === "Escape" && isTyping) { event.target.blur(); return; }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  const act = KEYS[event.key] || (/^[1-9]$/.test(event.key) ? () => choose(Number(event.key) - 1) : null);
  if (act) { event.preventDefault(); act(); }
});

function connection(isOn, closed) {
  const place = $("link"), gone = $("gone");
  place.className = isOn ? "on" : "off";
  place.replaceChildren(el("span", {}, isOn ? "connected" : "no connection"));
  gone.hidden = isOn;
  const run = runs[shown];
  const asOf = run ? ` What is shown is as of ${clock(run.look.now + run.skew)}.` : "";
  if (!isOn) gone.textContent = (closed ? "`tradewind watch` has ended, or was started again with another token: open the address that it prints." : "`tradewind watch` does not answer; it is tried again.") + asOf;
}

applyTheme();
const source = new EventSource("news?token=" + encodeURIComponent(TOKEN));
source.addEventListener("message", (message) => {
  takeIn(JSON.parse(message.data));
  connection(true);
  if (!document.hidden) showAll();
  document.documentElement.dataset.told = String(told);
});
source.addEventListener("error", () => connection(false, source.readyState === EventSource.CLOSED));
document.addEventListener("visibilitychange", () => { if (!document.hidden) showAll(true); });
