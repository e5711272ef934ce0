// Asks the server each second, keeps the last 15 minutes, asks for longer times, and says so when there is no answer.
//
// A point is what happened in a second, as rates. Each answer has the newest points of the server's history; at the
// start, after every pause in the answers and after a restart the page asks for more of it.

const POLL_MS = 1000;
const ANSWER_MS = 5000;
const LONGEST_WAIT_MS = 15_000;
// A longer pause between two answers leaves a hole that the server's history fills.
const GAP_MS = 4000;
// Points that the page keeps, a second apart; the server has more as minutes.
const KEPT_MS = 16 * 60_000;
const LONG_MS = 15 * 60_000;
// How often a longer time, the keys and the decisions are asked for.
const LONG_PERIOD_MS = 20_000;
const KEYS_PERIOD_MS = 900;
const DECISIONS_PERIOD_MS = 10_000;

const latencyOrNone = (value) => (isNumber(value) && value > 0 ? value : null);
const zeroAxis = (binary, least) => (values) => axisTo(Math.max(least, ...values), binary);

const commandsNow = (name) => ({ now }) => now.commands_per_second[name];
const getLatency = (name) => ({ latency_us: { get } }) => latencyOrNone(get?.count ? get[name] : null);
const charts = [
  new Chart(byId("chart-ratio"), {
    title: "Hit ratio", none: "No gets in this time", format: percent, axis: axisOfRatio, opposite: (ratio) => 1 - ratio,
    series: [{ name: "hits of gets", of: hitRatioOf, now: ({ now }) => now.hit_ratio, hue: "blue", mark: "" }, { name: "misses", of: missRatioOf, now: ({ now }) => (isNumber(now.hit_ratio) ? 1 - now.hit_ratio : null), hue: "grey" }],
  }),
  new Chart(byId("chart-throughput"), {
    title: "Throughput", none: "No data yet", format: rate, axis: zeroAxis(false, 1),
    series: [{ name: "gets", of: meanOf("gets"), now: commandsNow("get"), hue: "blue", mark: "" }, { name: "hits", of: meanOf("hits"), now: ({ now }) => now.get_hits_per_second, hue: "green", mark: "dots" }, { name: "sets", of: meanOf("sets"), now: commandsNow("set"), hue: "orange", mark: "dash" }],
  }),
  new Chart(byId("chart-latency"), {
    title: "Get latency", note: "in the server, logarithmic", none: "No gets in this time", format: micros, axis: axisOfDecades, scale: Math.log10,
    series: [{ name: "p50", of: meanOf("p50"), now: getLatency("p50"), hue: "blue", mark: "" }, { name: "p99", of: highestOf("p99"), now: getLatency("p99"), hue: "orange", mark: "dash" }],
  }),
  new Chart(byId("chart-removals"), {
    title: "Evictions and expiries", none: "No data yet", format: rate, axis: zeroAxis(false, 1),
    series: [{ name: "evicted", of: meanOf("evictions"), now: ({ now }) => now.evictions_per_second.all, hue: "orange", mark: "" }, { name: "expired", of: meanOf("expirations"), now: ({ now }) => now.expirations_per_second.all, hue: "blue", mark: "dash" }],
  }),
  new Chart(byId("chart-network"), {
    title: "Network", none: "No data yet", height: 150, format: byteRate, axis: zeroAxis(true, 1024),
    series: [{ name: "received", of: meanOf("received"), now: ({ now }) => now.network_per_second.bytes_read, hue: "blue", mark: "" }, { name: "sent", of: meanOf("sent"), now: ({ now }) => now.network_per_second.bytes_written, hue: "orange", mark: "dash" }],
  }),
  new Chart(byId("chart-connections"), { title: "Connections", none: "No data yet", height: 150, format: count, axis: zeroAxis(false, 4), series: [{ name: "open", of: meanOf("connections"), now: ({ connections }) => connections.open, hue: "blue", mark: "" }] }),
  new Chart(byId("chart-items"), { title: "Items", none: "No data yet", height: 150, format: count, axis: zeroAxis(false, 4), series: [{ name: "stored", of: meanOf("items"), now: ({ items }) => items, hue: "blue", mark: "" }] }),
];

const live = { points: [], overview: null, answeredAt: null, lostSince: null, failures: 0, asking: false, timer: null, retryAt: null, evicted: null, long: [], before: [], beforeKnown: false, asked: {} };

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
  if (!answer.ok) throw new Error(`${path} answers ${answer.status}`);
  return answer.json();
}

function pointOfHistory(point, step) {
  const per = (value) => (isNumber(value) ? value / step : null);
  return {
    time: point.time_unix_ms, gets: per(point.gets), hits: per(point.hits), sets: per(point.sets), evictions: per(point.evictions), expirations: per(point.expirations),
    received: per(point.bytes_read), sent: per(point.bytes_written), items: point.items, used: point.used_bytes, connections: point.connections, p50: latencyOrNone(point.get_p50_us), p99: latencyOrNone(point.get_p99_us),
  };
}

function restarted(before, after) {
  return after.uptime_seconds < before.uptime_seconds || after.pid !== before.pid || Math.abs(after.started_unix_ms - before.started_unix_ms) > 5000;
}

// Whether nothing is missing between two answers, and the clock of the server was not set back.
function isNext(before, after) {
  const pause = after.time_unix_ms - before.time_unix_ms;
  return pause > 0 && pause <= GAP_MS;
}

// The server's history replaces what the page has from its first point on; what is older stays.
function takeHistory(history) {
  const fresh = (history.points ?? []).map((point) => pointOfHistory(point, history.step_seconds || 1));
  const first = fresh.length ? fresh[0].time : Infinity;
  live.points = live.points.filter((point) => point.time < first).concat(fresh);
}

// The points of an answer that the page does not have yet.
function takePoints(points) {
  const last = live.points.at(-1)?.time ?? -Infinity;
  live.points.push(...(points ?? []).map((point) => pointOfHistory(point, 1)).filter((point) => point.time > last));
}

// Asks for `path` at most once in `period`, and again when `now` is set.
async function askNowAndThen(path, period, take, name = path.split("?")[0]) {
  if (performance.now() - (live.asked[name] ?? -Infinity) < period) return;
  live.asked[name] = performance.now();
  try {
    take(await ask(path));
  } catch {
    // The next answer of the overview says whether the server is there.
  }
}

function takeLong(history) {
  span.stepSeconds = history.step_seconds || 1;
  live.long = (history.points ?? []).map((point) => pointOfHistory(point, span.stepSeconds));
  drawCharts();
}

// The day before is drawn as if it were now.
function takeBefore(history) {
  if (!byId("compare").checked) return;
  const step = history.step_seconds || 1;
  const isEmpty = !history.points?.length;
  // In its first second a server answers without points; the next answer is asked for at once.
  if (isEmpty) live.asked.before = undefined;
  live.beforeKnown = !isEmpty || live.overview.uptime_seconds > 5;
  live.before = (history.points ?? []).map((point) => ({ ...pointOfHistory(point, step), time: point.time_unix_ms + DAY_MS }));
  drawCharts();
}

function askBefore() {
  if (byId("compare").checked) askNowAndThen(`/api/history?range=${span.ms / 1000}&ago=${DAY_MS / 1000}`, LONG_PERIOD_MS, takeBefore, "before");
}

// How much of the chosen time the server knows, where it is not all.
function tellKnown(points, { time_unix_ms: now, history_since_unix_ms: since, history_file: hasFile }) {
  const secondsSince = (time) => (isNumber(time) ? (now - time) / 1000 : 0);
  const [shown, kept] = [secondsSince(points[0]?.time), secondsSince(since)];
  const hint = hasFile ? "" : " With --history-file it keeps a week over restarts.";
  const told = shown > span.ms / 1000 - 120 ? "" : kept > shown + 120 && span.ms <= LONG_MS ? `The last ${duration(shown)} in seconds; choose 1 hour or more for the ${duration(kept)} before.`
    : `The server knows the last ${duration(shown)}.${hint}`;
  setText(byId("range-note"), told);
}

// The chosen time beside the same time a day before, in one sentence.
function tellComparison(points) {
  const isAsked = byId("compare").checked && live.beforeKnown;
  const inside = (all) => all.filter((point) => point.time > live.overview.time_unix_ms - span.ms);
  const [now, then] = [inside(points), inside(live.before)];
  const told = !isAsked ? "" : !then.length ? "The server has no history of that time: it did not run, or kept no file."
    : `In this time ${percent(hitRatioOf(now))} of gets hit, a day before ${percent(hitRatioOf(then))}; ${rate(meanOf("gets")(now))} gets, then ${rate(meanOf("gets")(then))}.`;
  setText(byId("compare-note"), told);
}

function compare() {
  live.asked.before = undefined;
  live.beforeKnown = false;
  live.before = [];
  askBefore();
  drawCharts();
}

function drawCharts() {
  const { overview } = live;
  if (overview === null) return;
  const points = span.ms > LONG_MS ? live.long : live.points;
  for (const chart of charts) chart.update(points, overview, live.before);
  tellKnown(points, overview);
  tellComparison(points);
}

function chooseRange() {
  span.ms = Number(byId("range").value) * 1000;
  span.stepSeconds = 1;
  live.asked["/api/history"] = undefined;
  live.asked.before = undefined;
  live.beforeKnown = false;
  live.before = [];
  pointAt(null);
  if (span.ms > LONG_MS) askNowAndThen(`/api/history?range=${span.ms / 1000}`, LONG_PERIOD_MS, takeLong);
  askBefore();
  drawCharts();
}

async function poll() {
  if (live.asking) return;
  clearTimeout(live.timer);
  const begun = performance.now();
  const before = live.overview;
  let answers;
  live.asking = true;
  try {
    const overview = await ask("/api/overview");
    const pause = before === null || live.lostSince !== null || restarted(before, overview) || !isNext(before, overview);
    answers = { overview, history: pause ? await ask("/api/history") : null };
  } catch {
    return lose();
  } finally {
    live.asking = false;
  }
  live.timer = setTimeout(poll, Math.max(100, POLL_MS - (performance.now() - begun)));
  accept(answers);
}

function accept({ overview, history }) {
  if (history) takeHistory(history);
  takePoints(overview.points);
  live.points = live.points.filter((point) => point.time > overview.time_unix_ms - KEPT_MS);
  Object.assign(live, { overview, answeredAt: Date.now(), lostSince: null, failures: 0, retryAt: null });
  document.documentElement.classList.add("live");
  document.documentElement.classList.remove("lost");
  byId("main").classList.remove("waiting");
  byId("lost").hidden = true;
  setText(byId("state-text"), "Live");
  cursor.stale = false;
  showTiles(overview);
  showSparks(live.points, overview.time_unix_ms);
  showHeadline(overview);
  drawCharts();
  const { evictions_per_second: evicted, demotions_per_second: demoted } = overview.now;
  showMemory(overview.memory, evicted.all === null ? null : evicted.all + demoted.all);
  showDivision(overview);
  showReasons(overview);
  showHotKeys(overview.hot_keys ?? [], overview.hot_keys_hidden);
  showCommands(overview);
  showEvents(overview.events ?? []);
  showServer(overview);
  showFlash(overview.flash);
  showBrowser(overview.hot_keys_hidden);
  // A day before is offered once there is one.
  byId("compare-row").hidden = !isNumber(overview.history_since_unix_ms) || overview.time_unix_ms - overview.history_since_unix_ms <= DAY_MS;
  askBefore();
  showVerdict(overview);
  if (span.ms > LONG_MS) askNowAndThen(`/api/history?range=${span.ms / 1000}`, LONG_PERIOD_MS, takeLong);
  askNowAndThen("/api/keys", KEYS_PERIOD_MS, showKeys);
  if ((overview.pools ?? []).length > 1) askNowAndThen("/api/decisions", DECISIONS_PERIOD_MS, showDecisions);
  if (curve.askedAt === null || performance.now() - curve.askedAt > CURVE_MS) askCurve();
}

// The last picture stays, greyed; the next try is later each time.
function lose() {
  live.lostSince ??= live.answeredAt ?? Date.now();
  const wait = Math.min(LONGEST_WAIT_MS, POLL_MS * 2 ** live.failures);
  live.failures += 1;
  live.retryAt = Date.now() + wait;
  live.timer = setTimeout(poll, wait);
  document.documentElement.classList.add("lost");
  document.documentElement.classList.remove("live");
  byId("lost").hidden = false;
  setText(byId("state-text"), "No answer");
  cursor.stale = true;
  pointAt(cursor.time);
  const since = `since ${clockSeconds(live.lostSince)}`;
  setText(byId("lost-since"), live.answeredAt ? `${since}. What is shown is from then.` : `${since}. There is nothing to show yet.`);
  document.title = "No answer – Ebbtide";
  countDown();
}

function countDown() {
  if (live.retryAt === null) return;
  const left = Math.ceil((live.retryAt - Date.now()) / 1000);
  setText(byId("lost-next"), left > 0 ? `Trying again in ${left}\u00a0s.` : "Trying again.");
}

function theme() {
  const select = byId("theme");
  const apply = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
  };
  // A browser may refuse storage; then the choice lasts as long as the page.
  try { select.value = localStorage.getItem("theme") ?? "auto"; } catch { select.value = "auto"; }
  if (!select.value) select.value = "auto";
  apply(select.value);
  select.addEventListener("change", () => {
    apply(select.value);
    try { localStorage.setItem("theme", select.value); } catch { /* as above */ }
  });
}

theme();
foldOnPhones();
byId("range").addEventListener("change", chooseRange);
byId("evicted-by").addEventListener("change", () => { if (live.evicted) showEvicted(live.evicted); });
byId("compare").addEventListener("change", compare);
setInterval(countDown, 500);
byId("retry").addEventListener("click", poll);
document.addEventListener("visibilitychange", () => { if (!document.hidden && live.lostSince === null) poll(); });
poll();
