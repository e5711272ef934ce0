// Asks the server each second, keeps the last 15 minutes, asks for longer times, and says so when there is no answer.
//
// A point is what happened in a second, as rates. The server's own history gives them at the start, after every pause
// in the answers and after a restart; in between the page makes them from the differences of the counters.

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
const KEYS_PERIOD_MS = 3000;
const DECISIONS_PERIOD_MS = 10_000;

const latencyOrNone = (value) => (isNumber(value) && value > 0 ? value : null);
const zeroAxis = (binary, least) => (values) => axisTo(Math.max(least, ...values), binary);

const charts = [
  new Chart(byId("chart-ratio"), {
    title: "Hit ratio", none: "No gets in this time", format: percent, axis: axisOfRatio, opposite: (ratio) => 1 - ratio,
    series: [{ name: "hits of gets", of: hitRatioOf, hue: "blue", mark: "" }, { name: "misses", of: missRatioOf, hue: "grey" }],
  }),
  new Chart(byId("chart-throughput"), {
    title: "Throughput", none: "No data yet", format: rate, axis: zeroAxis(false, 1),
    series: [{ name: "gets", of: meanOf("gets"), hue: "blue", mark: "" }, { name: "hits", of: meanOf("hits"), hue: "green", mark: "dots" }, { name: "sets", of: meanOf("sets"), hue: "orange", mark: "dash" }],
  }),
  new Chart(byId("chart-latency"), {
    title: "Get latency", note: "in the server, logarithmic", none: "No gets in this time", format: micros, axis: axisOfDecades, scale: Math.log10,
    series: [{ name: "p50", of: meanOf("p50"), hue: "blue", mark: "" }, { name: "p99, highest", of: highestOf("p99"), hue: "orange", mark: "dash" }],
  }),
  new Chart(byId("chart-removals"), {
    title: "Evictions and expiries", none: "No data yet", format: rate, axis: zeroAxis(false, 1),
    series: [{ name: "evicted", of: meanOf("evictions"), hue: "orange", mark: "" }, { name: "expired", of: meanOf("expirations"), hue: "blue", mark: "dash" }],
  }),
  new Chart(byId("chart-network"), {
    title: "Network", none: "No data yet", height: 150, format: byteRate, axis: zeroAxis(true, 1024),
    series: [{ name: "received", of: meanOf("received"), hue: "blue", mark: "" }, { name: "sent", of: meanOf("sent"), hue: "orange", mark: "dash" }],
  }),
  new Chart(byId("chart-connections"), { title: "Connections", none: "No data yet", height: 150, format: count, axis: zeroAxis(false, 4), series: [{ name: "open", of: meanOf("connections"), hue: "blue", mark: "" }] }),
  new Chart(byId("chart-items"), { title: "Items", none: "No data yet", height: 150, format: count, axis: zeroAxis(false, 4), series: [{ name: "stored", of: meanOf("items"), hue: "blue", mark: "" }] }),
];

const live = { points: [], overview: null, answeredAt: null, lostSince: null, failures: 0, asking: false, timer: null, retryAt: null, rates: null, seen: [], long: [], before: [], beforeKnown: false, asked: {} };

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
  if (!answer.ok) throw new Error(`${path} answers ${answer.status}`);
  return answer.json();
}

function pointOfHistory(point, step) {
  const per = (value) => (isNumber(value) ? value / step : null);
  return {
    time: point.time_unix_ms, gets: per(point.gets), hits: per(point.hits), sets: per(point.sets), evictions: per(point.evictions), expirations: per(point.expirations),
    received: per(point.bytes_read), sent: per(point.bytes_written), items: point.items, connections: point.connections, p50: latencyOrNone(point.get_p50_us), p99: latencyOrNone(point.get_p99_us),
  };
}

const setsOf = (overview) => { const { done, not } = totalsOf(overview.commands.set); return done + not; };

// What happened between two answers, as rates; `null` where the counters are of another life of the server.
function pointBetween(before, after) {
  const seconds = (after.time_unix_ms - before.time_unix_ms) / 1000;
  if (!(seconds > 0) || restarted(before, after)) return null;
  const per = (of) => Math.max(0, (of(after) - of(before)) / seconds);
  return {
    time: after.time_unix_ms, gets: per((o) => o.commands.get.hits + o.commands.get.misses), hits: per((o) => o.commands.get.hits), sets: per(setsOf),
    evictions: per((o) => o.evictions.total), expirations: per((o) => o.expirations.total), received: per((o) => o.network.bytes_read_total), sent: per((o) => o.network.bytes_written_total),
    items: after.items, connections: after.connections.open,
    p50: latencyOrNone(after.latency_us?.get?.count ? after.latency_us.get.p50 : null), p99: latencyOrNone(after.latency_us?.get?.count ? after.latency_us.get.p99 : null),
  };
}

function ratesBetween(before, after) {
  const seconds = (after.time_unix_ms - before.time_unix_ms) / 1000;
  if (!(seconds > 0) || restarted(before, after)) return null;
  const rates = { commands: {}, reasons: {} };
  for (const [name, counters] of Object.entries(after.commands)) {
    const [now, then] = [totalsOf(counters), totalsOf(before.commands[name] ?? 0)];
    rates.commands[name] = Math.max(0, (now.done + (now.not ?? 0) - then.done - (then.not ?? 0)) / seconds);
  }
  for (const kind of ["evictions", "expirations"]) {
    for (const [reason, total] of Object.entries(after[kind].by_reason)) rates.reasons[`${kind} ${reason}`] = Math.max(0, (total - (before[kind].by_reason[reason] ?? 0)) / seconds);
  }
  return rates;
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
  for (const chart of charts) chart.update(points, overview.time_unix_ms, overview.started_unix_ms, overview.events, live.before);
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
  accept(before, answers);
}

function accept(before, { overview, history }) {
  const point = before && !history ? pointBetween(before, overview) : null;
  if (history) takeHistory(history);
  if (point) live.points.push(point);
  // Rates are of the last ten seconds: those of one second jump.
  if (before && restarted(before, overview)) live.seen = [];
  live.seen = [...live.seen, overview].filter((seen) => seen.time_unix_ms > overview.time_unix_ms - NOW_MS - 500);
  live.rates = live.seen.length > 1 ? ratesBetween(live.seen[0], overview) : null;
  live.points = live.points.filter((point) => point.time > overview.time_unix_ms - KEPT_MS);
  Object.assign(live, { overview, answeredAt: Date.now(), lostSince: null, failures: 0, retryAt: null });
  document.documentElement.classList.add("live");
  document.documentElement.classList.remove("lost");
  byId("main").classList.remove("waiting");
  byId("lost").hidden = true;
  setText(byId("state-text"), "Live");
  cursor.stale = false;
  showHeadlines(overview, live.points, overview.time_unix_ms);
  showHeadline(overview.headline, live.points, overview.time_unix_ms);
  drawCharts();
  showMemory(overview.memory, evictedNow());
  showDivision(overview);
  showReasons(overview, live.rates);
  showHotKeys(overview.hot_keys ?? [], overview.hot_keys_hidden);
  showCommands(overview, live.rates);
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

// Evictions a second, in the last seconds; null where nothing is known.
const evictedNow = () => (live.rates === null ? null : Object.entries(live.rates.reasons).reduce((sum, [reason, value]) => sum + (reason.startsWith("evictions ") ? value : 0), 0));

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
byId("compare").addEventListener("change", compare);
setInterval(countDown, 500);
byId("retry").addEventListener("click", poll);
document.addEventListener("visibilitychange", () => { if (!document.hidden && live.lostSince === null) poll(); });
poll();
