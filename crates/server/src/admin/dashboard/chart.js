// Line charts in SVG over the chosen time. One cursor is shared by all of them: what the pointer or the arrow keys
// point at is read out in the legend of every chart.
//
// The points, one a second, are gathered in steps of some seconds, aligned to the clock so that the lines do not
// shimmer as they move; the steps are as fine as the width allows.

// The time that all charts show, and the seconds of a point of that time.
const span = { ms: 15 * 60 * 1000, stepSeconds: 1 };
const STEPS_S = [1, 2, 3, 5, 10, 15, 30, 60, 120, 300, 660, 1800, 3600, 7200];
// Minutes between two labels of the time.
const LABELS_MIN = [1, 3, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440];
const MARKED_EVENTS = ["start", "resize", "division", "flush", "warning", "eviction"];
const LEFT = 62;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 22;

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes ?? {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Does nothing where nothing changes, so that a selection of the reader's stays.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// The same time a day before, drawn as if it were now: points with `time` shifted by a day.
const DAY_MS = 86_400_000;

// Ways to make one number of the points of a step.
const meanOf = (key) => (points) => {
  const values = points.map((point) => point[key]).filter(isNumber);
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
};
const highestOf = (key) => (points) => points.map((point) => point[key]).filter(isNumber).reduce((most, value) => Math.max(most ?? value, value), null);
const hitRatioOf = (points) => {
  const gets = points.reduce((sum, point) => sum + (point.gets ?? 0), 0);
  return gets > 0 ? points.reduce((sum, point) => sum + (point.hits ?? 0), 0) / gets : null;
};
const missRatioOf = (points) => {
  const hits = hitRatioOf(points);
  return hits === null ? null : 1 - hits;
};

const isDrawn = (line) => line.mark !== undefined;

// The points of the chosen time in steps of `seconds`: [{time, values}], oldest first.
function gather(points, series, seconds, now) {
  const steps = [];
  const width = seconds * 1000;
  let group = [];
  const close = () => {
    if (!group.length) return;
    steps.push({ time: Math.floor(group[0].time / width) * width + width / 2, values: series.map((line) => line.of(group)) });
    group = [];
  };
  for (const point of points) {
    if (point.time < now - span.ms) continue;
    if (group.length && Math.floor(group[0].time / width) !== Math.floor(point.time / width)) close();
    group.push(point);
  }
  close();
  return steps;
}

// From 0 to a round number over `most`, in three to five equal parts.
function axisTo(most, binary) {
  let unit = 1;
  if (binary) while (most / unit >= 1024) unit *= 1024;
  const scaledMost = Math.max(most / unit, binary && unit === 1 ? 1 : 1e-9);
  const power = 10 ** Math.floor(Math.log10(scaledMost / 3 || 1));
  const part = [1, 2, 2.5, 5, 10].map((factor) => factor * power * unit).find((size) => most <= size * 4) ?? 10 * power * unit;
  const parts = Math.max(1, Math.ceil(most / part - 1e-9));
  return Array.from({ length: parts + 1 }, (_, index) => index * part);
}

// A ratio's axis begins as low as the lowest value needs.
function axisOfRatio(values) {
  const least = values.length ? Math.min(...values) : 0;
  if (least >= 0.99) return [0.99, 0.995, 1];
  if (least >= 0.9) return [0.9, 0.95, 1];
  if (least >= 0.5) return [0.5, 0.75, 1];
  return [0, 0.25, 0.5, 0.75, 1];
}

// Powers of ten around all values, for what a rare high value would press flat.
function axisOfDecades(values) {
  const first = Math.floor(Math.log10(Math.min(...values, 10)));
  const last = Math.max(first + 2, Math.ceil(Math.log10(Math.max(...values, 1))));
  return Array.from({ length: last - first + 1 }, (_, index) => 10 ** (first + index));
}

const cursor = { time: null, stale: false, charts: [] };
function pointAt(time) {
  cursor.time = time;
  for (const chart of cursor.charts) chart.mark();
}

class Chart {
  // `series`: [{name, of, hue, mark}] with mark "", "dash" or "dots"; without a mark the series has a reading but no
  // line. `now` is its reading of the present, from an overview. `axis` makes the ticks from the values of all lines; `opposite` makes the numbers of a second axis at the
  // right from these ticks; `scale` bends the axis.
  constructor(host, { title, note, series, format, axis, none, opposite = null, scale = (value) => value, height = 190 }) {
    Object.assign(this, { title, series, format, axis, none, opposite, scale, height, steps: [], before: [], earlier: [], width: 0, points: [], now: 0, started: null });
    this.right = opposite ? LEFT : RIGHT;
    const id = `${host.id}-title`;
    this.when = el("span", { class: "when at" });
    this.axisNote = el("span", { class: "when" });
    this.readings = series.map(() => el("b", {}, DASH));
    this.yesterday = el("b", {}, DASH);
    this.yesterdayItem = el("li", { class: "grey", hidden: "" },
      svg("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" }, svg("path", { class: "series dots", d: "M2 4H20" })), el("span", {}, `${series[0].name} a day before`), this.yesterday);
    const legend = series.map((line, index) => el("li", { class: line.hue },
      ...(isDrawn(line) ? [svg("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" }, svg("path", { class: `series ${line.mark}`, d: "M2 4H20" }))] : []),
      el("span", {}, line.name), this.readings[index]));
    this.svg = svg("svg", { height, "aria-hidden": "true" });
    this.plot = el("div", {
      class: "plot", tabindex: "0", role: "slider", "aria-orientation": "horizontal", "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0",
      "aria-label": `${title} over time${note ? `, ${note}` : ""}; arrow keys move along the time`, "aria-valuetext": "no data yet",
    }, this.svg);
    this.table = el("table", { "aria-labelledby": id });
    this.details = el("details", {}, el("summary", {}, "As a table", el("span", { class: "hidden" }, `: ${title}`)), this.table);
    host.append(el("div", { class: "head" }, el("h2", { id }, title), ...(note ? [el("span", { class: "when" }, note)] : []), this.axisNote, this.when), el("ul", { class: "legend" }, ...legend, this.yesterdayItem), this.plot, this.details);
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.plot);
    cursor.charts.push(this);
  }

  listen() {
    this.plot.addEventListener("pointermove", (event) => this.follow(event));
    this.plot.addEventListener("pointerdown", (event) => this.follow(event));
    this.plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") pointAt(null); });
    this.plot.addEventListener("focus", () => this.speak(this.current()));
    this.plot.addEventListener("blur", () => pointAt(null));
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.details.addEventListener("toggle", () => this.tabulate());
  }

  follow(event) {
    const share = (event.clientX - this.plot.getBoundingClientRect().left - LEFT) / (this.width - LEFT - this.right);
    pointAt(this.now - span.ms + Math.min(1, Math.max(0, share)) * span.ms);
  }

  key(event) {
    const last = this.steps.length - 1;
    const at = this.current();
    const to = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageDown: at - 10, PageUp: at + 10, Home: 0, End: last }[event.key];
    if (event.key === "Escape") pointAt(null);
    if (to === undefined || last < 0) return;
    event.preventDefault();
    const index = Math.min(last, Math.max(0, to));
    pointAt(this.steps[index].time);
    this.speak(index);
  }

  // The step under the cursor; the last one where there is no cursor; -1 where there are no steps.
  current() {
    if (cursor.time === null) return this.steps.length - 1;
    let best = -1;
    for (const [index, step] of this.steps.entries()) {
      if (best < 0 || Math.abs(step.time - cursor.time) < Math.abs(this.steps[best].time - cursor.time)) best = index;
    }
    return best;
  }

  // Said only when the reader moves, for a text that changes each second would be read out each second.
  speak(index) {
    const step = this.steps[index];
    if (!step) return;
    const values = this.series.map((line, at) => `${line.name} ${this.format(step.values[at])}`);
    if (this.before.length) values.push(`a day before ${this.format(this.earlierAt(step.time))}`);
    this.plot.setAttribute("aria-valuemax", this.steps.length - 1);
    this.plot.setAttribute("aria-valuenow", index);
    this.plot.setAttribute("aria-valuetext", `${span.ms > 86_400_000 ? `${day(step.time)} ` : ""}${clockSeconds(step.time)}: ${values.join(", ")}`);
  }

  resize() {
    const width = Math.floor(this.plot.clientWidth);
    if (width !== this.width && width > 0) {
      this.width = width;
      this.draw();
    }
  }

  // `before`: the points of a day before, shifted to now; empty without a comparison.
  update(points, overview, before) {
    const isOther = (before.length > 0) !== (this.before.length > 0);
    const { time_unix_ms: now, started_unix_ms: started, events } = overview;
    Object.assign(this, { points, overview, now, started, events, before });
    this.yesterdayItem.toggleAttribute("hidden", before.length === 0);
    this.draw();
    if (this.details.open && (isOther || now - (this.tabulated ?? 0) > 10_000)) this.tabulate();
  }

  draw() {
    if (!this.width) return;
    const space = (this.width - LEFT - this.right) / 2;
    this.seconds = STEPS_S.find((step) => step >= span.stepSeconds && span.ms / 1000 / step <= space) ?? STEPS_S.at(-1);
    this.steps = gather(this.points, this.series, this.seconds, this.now);
    this.earlierSeconds = Math.max(this.seconds, 60);
    this.earlier = gather(this.before, this.series.slice(0, 1), this.earlierSeconds, this.now);
    const values = [...this.steps, ...this.earlier].flatMap((step) => step.values.filter((value, index) => isNumber(value) && isDrawn(this.series[index])));
    const ticks = this.axis(values);
    this.tellAxis(ticks, values.length > 0);
    const [low, high] = [ticks[0], ticks.at(-1)].map(this.scale);
    this.x = (time) => LEFT + ((time - this.now + span.ms) / span.ms) * (this.width - LEFT - this.right);
    this.y = (value) => TOP + (1 - (this.scale(value) - low) / (high - low)) * (this.height - TOP - BOTTOM);
    this.cross = svg("g");
    const fill = ticks[0] === 0 && values.length ? [this.area(0)] : [];
    const lines = this.series.map((line, index) => !isDrawn(line) ? "" : svg("g", { class: line.hue }, svg("path", { class: `series ${line.mark}`, d: this.path(this.runs(index)) })));
    const earlier = svg("g", { class: "grey" }, svg("path", { class: "series dots earlier", d: this.path(this.runsOf(this.earlier, 0, this.earlierSeconds)) }));
    const nothing = values.length ? [] : [svg("text", { x: (LEFT + this.width - this.right) / 2, y: this.height / 2 - 6, "text-anchor": "middle" }, this.none)];
    this.svg.replaceChildren(...this.scales(ticks), ...this.beginning(), ...this.happenings(), ...fill, earlier, ...lines.reverse(), ...nothing, this.cross);
    this.mark();
  }

  scales(ticks) {
    const nodes = [];
    for (const tick of ticks) {
      const y = Math.round(this.y(tick)) + 0.5;
      nodes.push(svg("line", { class: "rule", x1: LEFT, x2: this.width - this.right, y1: y, y2: y }));
      nodes.push(svg("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, this.format(tick)));
      if (this.opposite) nodes.push(svg("text", { x: this.width - this.right + 8, y: y + 4 }, this.format(this.opposite(tick))));
    }
    const minute = 60_000;
    const every = LABELS_MIN.find((label) => span.ms / minute / label <= this.width / 85) ?? LABELS_MIN.at(-1);
    for (let time = Math.ceil((this.now - span.ms) / (every * minute)) * every * minute; time <= this.now; time += every * minute) {
      const x = this.x(time);
      if (x < LEFT + 16 || x > this.width - this.right - 16) continue;
      nodes.push(svg("text", { x, y: this.height - 5, "text-anchor": "middle" }, every >= 1440 ? day(time) : clock(time)));
    }
    return nodes;
  }

  // Says where an axis begins that does not begin at 0, and what the second axis counts.
  tellAxis(ticks, isKnown) {
    const begin = ticks[0] > 0 ? this.format(ticks[0]) : "0";
    setText(this.axisNote, isKnown && this.opposite ? `axis begins at ${begin}; misses at the right` : "");
  }

  // Events as marks with their reason; the list of events gives the same to screen readers.
  happenings() {
    // The present start has a line of its own.
    const isMarked = ({ kind, time_unix_ms: time }) => MARKED_EVENTS.includes(kind) && time > this.now - span.ms && !(kind === "start" && time === this.started);
    const inside = (this.events ?? []).filter(isMarked);
    return inside.map((event) => {
      const x = Math.round(this.x(event.time_unix_ms)) + 0.5;
      return svg("g", {}, svg("title", {}, `${clockSeconds(event.time_unix_ms)} ${event.kind}: ${event.reason}`),
        svg("line", { class: "event", x1: x, x2: x, y1: TOP, y2: this.height - BOTTOM }), svg("path", { class: "event-mark", d: `M${x - 5} ${TOP - 8}H${x + 5}L${x} ${TOP}Z` }));
    });
  }

  // Where the server began to count.
  beginning() {
    if (!isNumber(this.started) || this.started < this.now - span.ms) return [];
    const x = Math.round(this.x(this.started)) + 0.5;
    const late = x > this.width - this.right - 60;
    return [svg("line", { class: "begin", x1: x, x2: x, y1: TOP, y2: this.height - BOTTOM }), svg("text", { x: late ? x - 5 : x + 5, y: TOP + 10, "text-anchor": late ? "end" : "start" }, "started")];
  }

  // Runs of neighbouring steps that have a value; a gap in the data stays a gap.
  runs(index) {
    return this.runsOf(this.steps, index, this.seconds);
  }

  runsOf(steps, index, seconds) {
    const runs = [];
    let before = null;
    for (const step of steps) {
      const value = step.values[index];
      if (!isNumber(value)) { before = null; continue; }
      if (before === null || step.time - before > 1.5 * seconds * 1000 + 3500) runs.push([]);
      runs.at(-1).push(`${this.x(step.time).toFixed(1)} ${this.y(value).toFixed(1)}`);
      before = step.time;
    }
    return runs;
  }

  // The first value of the day before at this time; null where nothing is known.
  earlierAt(time) {
    const near = this.earlier.find((step) => Math.abs(step.time - time) <= (this.earlierSeconds * 1000) / 2);
    return near?.values[0] ?? null;
  }

  path(runs) {
    return runs.map((run) => `M${run.length > 1 ? run.join("L") : `${run[0]}h0.1`}`).join("");
  }

  area(index) {
    const floor = this.y(0).toFixed(1);
    const shapes = this.runs(index).filter((run) => run.length > 1).map((run) => `M${run[0].split(" ")[0]} ${floor}L${run.join("L")}V${floor}Z`);
    return svg("g", { class: this.series[index].hue }, svg("path", { class: "fill", d: shapes.join("") }));
  }

  // The cursor and the readings; the lines stay as they are.
  mark() {
    if (!this.width || !this.cross) return;
    const step = this.steps[this.current()];
    const pointed = cursor.time !== null && step !== undefined;
    const reading = (index) => (pointed || cursor.stale || !this.overview ? step?.values[index] : this.series[index].now(this.overview));
    this.readings.forEach((node, index) => setText(node, this.format(reading(index) ?? null)));
    if (this.before.length) setText(this.yesterday, this.format(this.earlierAt(pointed && step ? step.time : this.now - 30_000)));
    setText(this.when, !step ? "" : pointed || cursor.stale ? `at ${clockSeconds(step.time)}` : "last minute");
    if (!pointed) return this.cross.replaceChildren();
    const x = this.x(step.time).toFixed(1);
    const dots = step.values.map((value, index) => (isNumber(value) && isDrawn(this.series[index]) ? svg("g", { class: this.series[index].hue }, svg("circle", { class: "point", cx: x, cy: this.y(value), r: 4 })) : null));
    this.cross.replaceChildren(svg("line", { class: "cross", x1: x, x2: x, y1: TOP, y2: this.height - BOTTOM }), ...dots.filter(Boolean));
  }

  // One row a minute, or a step where that is longer; newest first.
  tabulate() {
    if (!this.details.open) return this.table.replaceChildren();
    this.tabulated = this.now;
    const head = el("tr", {}, el("th", { scope: "col" }, "Minute"), ...this.series.map((line) => el("th", { scope: "col", class: "n" }, line.name)),
      ...(this.before.length ? [el("th", { scope: "col", class: "n" }, `${this.series[0].name} a day before`)] : []));
    const rows = gather(this.points, this.series, Math.max(60, this.seconds ?? 60), this.now).reverse().map((step) => {
      const values = this.before.length ? [...step.values, this.earlierAt(step.time)] : step.values;
      return el("tr", {}, el("th", { scope: "row" }, clock(step.time)), ...values.map((value) => el("td", { class: "n" }, this.format(value))));
    });
    this.table.replaceChildren(el("thead", {}, head), el("tbody", {}, ...rows));
  }
}
