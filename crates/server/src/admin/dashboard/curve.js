// The curve of misses by memory, and a slider that answers what another size would give.
//
// With flash a miss goes past both tiers, so the curve is read at the sum of both, as if flash were slower memory. The
// same is asked of a cache without flash: it is the most that flash could give.

const CURVE_MS = 10_000;
const CURVE_HEIGHT = 220;
const FLASH_STEPS = 8;
// Steps for each memory of flash that does not exist.
const NEW_FLASH_STEPS = 2;
const GIB = 2 ** 30;
const MONTH_SECONDS = 30.4375 * 86_400;

// `pool` is null until the reader chooses one: then the curve is that of the pool of the verdict. `poolGets` has the gets a
// second of each of several pools.
const curve = { askedAt: null, data: null, flashBytes: 0, hasFlash: false, getsPerSecond: null, moved: false, flashMoved: false, pool: null, verdictPool: null, poolGets: new Map() };

function showVerdict(overview) {
  byId("verdict").hidden = !overview.verdict;
  setText(byId("verdict"), overview.verdict ?? "");
  byId("division").hidden = !overview.division;
  setText(byId("division"), overview.division ?? "");
  showPools(overview);
  // The curve of one pool of several is that of its memory.
  curve.hasFlash = Boolean(overview.flash);
  curve.flashBytes = curve.poolGets.size ? 0 : overview.flash?.capacity_bytes ?? 0;
}

// Pools with a store have a curve each.
function showPools(overview) {
  const pools = (overview.pools ?? []).filter((pool) => pool.kind === "store");
  const isDivided = pools.length > 1;
  byId("curve-pool-row").hidden = !isDivided;
  curve.poolGets = new Map(isDivided ? pools.map((pool) => [pool.name, pool.now.commands_per_second.get]) : []);
  const [select, names] = [byId("curve-pool"), pools.map((pool) => pool.name)];
  if (names.join() !== [...select.options].map((option) => option.value).join()) select.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
  if (!names.includes(curve.pool)) curve.pool = null;
  if (curve.verdictPool !== overview.headline.pool && curve.pool === null) curve.askedAt = null;
  curve.verdictPool = overview.headline.pool;
  select.value = shownPool();
}

function shownPool() {
  return curve.pool ?? curve.verdictPool ?? "default";
}

async function askCurve() {
  curve.askedAt = performance.now();
  try {
    const pool = shownPool();
    const data = await ask(`/api/curves?pool=${encodeURIComponent(pool)}`);
    if (pool === shownPool()) showCurve(data);
  } catch {
    // The next answer of the overview says whether the server is there.
  }
}

function showCurve(data) {
  curve.data = data.points.length ? data : null;
  byId("curve").hidden = curve.data === null;
  byId("curve-none").hidden = curve.data !== null;
  if (curve.data === null) return;
  byId("curve-entropy").hidden = !data.miss_entropy;
  setText(byId("curve-entropy"), data.miss_entropy ? `${data.miss_entropy.meaning[0].toUpperCase()}${data.miss_entropy.meaning.slice(1)}.` : "");
  const slider = byId("curve-memory");
  slider.max = String(data.points.length - 1);
  if (!curve.moved) slider.value = String(data.points.findIndex((point) => point.memory_bytes === data.present.memory_bytes));
  const recent = live.points.slice(-60);
  const all = recent.length ? recent.reduce((sum, point) => sum + (point.gets ?? 0), 0) / recent.length : null;
  curve.getsPerSecond = curve.poolGets.size ? curve.poolGets.get(data.pool) ?? null : all;
  byId("curve-flash-row").hidden = byId("curve-flash-price-row").hidden = !offersFlash();
  byId("curve-flash-none").hidden = curve.hasFlash;
  const flash = byId("curve-flash");
  const { steps, now } = flashScale(data);
  flash.max = String(steps);
  if (!curve.flashMoved) flash.value = String(now);
  answerWhatIf();
}

// The curve of one pool of several does not know its flash.
function offersFlash() {
  return curve.flashBytes > 0 || !curve.hasFlash;
}

// Bytes of a step of the slider of flash, the number of steps, and the one of the present flash. Flash that does not
// exist is offered as far as the curve reaches.
function flashScale({ points, present }) {
  if (curve.flashBytes > 0) return { step: curve.flashBytes / FLASH_STEPS, steps: 2 * FLASH_STEPS, now: FLASH_STEPS };
  const beyond = points[points.length - 1].memory_bytes / present.memory_bytes - 1;
  return { step: present.memory_bytes / NEW_FLASH_STEPS, steps: Math.floor(NEW_FLASH_STEPS * beyond), now: 0 };
}

// The point at some memory, on the line between its neighbours.
function curveAt(points, memory) {
  const after = points.findIndex((point) => point.memory_bytes >= memory);
  if (after < 0) return points[points.length - 1];
  const [next, before] = [points[after], points[Math.max(0, after - 1)]];
  if (after === 0 || next.memory_bytes === memory) return next;
  const part = (memory - before.memory_bytes) / (next.memory_bytes - before.memory_bytes);
  const between = (key) => before[key] + part * (next[key] - before[key]);
  return { memory_bytes: memory, miss_ratio: between("miss_ratio"), low: between("low"), high: between("high") };
}

function answerWhatIf() {
  if (curve.data === null) return;
  const { points, present } = curve.data;
  const memory = points[Number(byId("curve-memory").value)]?.memory_bytes ?? present.memory_bytes;
  const flash = offersFlash() ? flashScale(curve.data).step * Number(byId("curve-flash").value) : 0;
  // The level of the curve is that of the misses of both tiers as they are.
  const at = curveAt(points, Math.max(points[0].memory_bytes, memory + flash - curve.flashBytes));
  const price = (id) => Math.max(0, Number(byId(id).value) || 0);
  const misses = isNumber(curve.getsPerSecond) ? curve.getsPerSecond * at.miss_ratio : null;
  const cost = (memory / GIB) * price("curve-price") + (flash / GIB) * price("curve-flash-price") + ((misses ?? 0) * MONTH_SECONDS * price("curve-miss-price")) / 1e6;
  show("curve-memory-bytes", memory, bytes(memory));
  byId("curve-memory").setAttribute("aria-valuetext", `${bytes(memory)}, ${percent(at.miss_ratio)} misses`);
  show("curve-flash-bytes", flash, bytes(flash));
  show("curve-misses", at.miss_ratio, percent(at.miss_ratio));
  setText(byId("curve-interval"), at.high > at.low ? `(${percent(at.low)} to ${percent(at.high)})` : "");
  show("curve-misses-rate", misses, rate(misses));
  show("curve-hits-rate", misses === null ? null : curve.getsPerSecond - misses, rate(misses === null ? null : curve.getsPerSecond - misses));
  show("curve-cost", cost, cost.toFixed(2));
  drawCurve(points, present, at);
}

function drawCurve(points, present, chosen) {
  const plot = byId("curve-plot");
  const width = Math.max(240, plot.clientWidth);
  const [first, last] = [points[0].memory_bytes, points[points.length - 1].memory_bytes];
  const highest = Math.max(0.05, ...points.map((point) => point.high));
  const x = (memory) => LEFT + ((width - LEFT - RIGHT) * Math.log(memory / first)) / Math.log(last / first);
  const y = (ratio) => TOP + (CURVE_HEIGHT - TOP - BOTTOM) * (1 - ratio / highest);
  const line = (key) => points.map((point) => `${x(point.memory_bytes).toFixed(1)},${y(point[key]).toFixed(1)}`);
  const mark = (point, hue) => svg("circle", { class: `point ${hue}`, cx: x(point.memory_bytes), cy: y(point.miss_ratio), r: 5 });
  const label = (at, text, anchor) => svg("text", { x: at, y: CURVE_HEIGHT - 4, "text-anchor": anchor }, text);
  const level = (ratio) => [svg("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y(ratio), y2: y(ratio) }), svg("text", { x: LEFT - 6, y: y(ratio) + 4, "text-anchor": "end" }, percent(ratio))];
  plot.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${CURVE_HEIGHT}`, height: CURVE_HEIGHT, "aria-hidden": "true" },
    ...[0, highest / 2, highest].flatMap(level),
    svg("polygon", { class: "fill blue", points: [...line("low"), ...line("high").reverse()].join(" ") }),
    svg("polyline", { class: "series blue", points: line("miss_ratio").join(" ") }),
    label(x(first), bytes(first), "start"), label(x(present.memory_bytes), "now", "middle"), label(x(last), bytes(last), "end"),
    mark(present, "blue"), mark({ ...chosen, memory_bytes: Math.min(last, chosen.memory_bytes) }, "orange")));
  plot.setAttribute("aria-label", `now ${bytes(present.memory_bytes)} with ${percent(present.miss_ratio)} misses; chosen ${bytes(chosen.memory_bytes)} with ${percent(chosen.miss_ratio)}`);
}

byId("curve-memory").addEventListener("input", () => { curve.moved = true; });
byId("curve-flash").addEventListener("input", () => { curve.flashMoved = true; });
byId("curve-pool").addEventListener("change", () => {
  curve.pool = byId("curve-pool").value;
  curve.moved = curve.flashMoved = false;
  showCurve({ points: [] });
  askCurve();
});
for (const id of ["curve-memory", "curve-flash", "curve-price", "curve-flash-price", "curve-miss-price"]) byId(id).addEventListener("input", answerWhatIf);
