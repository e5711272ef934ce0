// Rendering of one answer of /api/overview. All texts are inserted as text, never as markup: clients choose keys and
// parts of event texts.

const byId = (id) => document.getElementById(id);

// A number with its exact value for programs beside the text for people.
function show(id, value, text) {
  const node = byId(id);
  setText(node, text);
  const exact = isNumber(value) ? String(value) : "";
  if (node.value !== exact) node.value = exact;
}

// Fills a table body row by row, reusing what is there. A cell is a text, or the parts of a bar.
function fill(tableId, rows, empty) {
  const body = byId(tableId).tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, at) => {
    const row = body.rows[at] ?? body.appendChild(el("tr"));
    cells.forEach((cell, index) => {
      const wide = byId(tableId).tHead.rows[0].cells[index].className;
      const node = row.cells[index] ?? row.appendChild(el(index === 0 ? "th" : "td", index === 0 ? { scope: "row" } : { class: wide }));
      if (Array.isArray(cell)) stack(node.firstElementChild ?? node.appendChild(el("div", { class: "bar", "aria-hidden": "true" })), cell);
      else setText(node, cell);
    });
  });
  if (empty) {
    byId(tableId).hidden = rows.length === 0;
    byId(empty).hidden = rows.length > 0;
  }
}

// Parts of a bar: [{share, look, title}], shares of the whole bar.
function stack(bar, parts) {
  while (bar.children.length > parts.length) bar.lastElementChild.remove();
  parts.forEach((part, index) => {
    const node = bar.children[index] ?? bar.appendChild(el("i"));
    node.className = part.look;
    node.title = part.title ?? "";
    node.style.width = `${(Math.min(1, Math.max(0, part.share || 0)) * 100).toFixed(2)}%`;
  });
}

const MEMORY_PARTS = [
  ["live_bytes", "Live", "blue solid", "items that can be read"],
  ["expired_bytes", "Expired", "orange hatch", "not taken back yet"],
  ["dead_bytes", "Dead", "purple grain", "overwritten, deleted or not filled yet"],
  ["index_bytes", "Index", "green solid", "where each key is"],
  ["metadata_bytes", "Metadata", "grey stripes", "headers and tables"],
  ["free_bytes", "Free", "free", "segments without items"],
];

// From this share of the memory on dead bytes cost hits when objects are evicted.
const MUCH_DEAD = 0.2;

// Whether dead memory is bad, and what to do. `evicted`: objects that leave memory in a second, also for
// flash; null where they are not known.
function deadAdvice(share, evicted) {
  if (share < MUCH_DEAD || evicted === 0) return "not bad: it is reused before an object is evicted, nothing to do";
  if (evicted === null) return "reused before an object is evicted";
  return "bad: much of it while objects are evicted; fewer different TTLs or a smaller --segment-size leave less unfilled";
}

function showMemory(memory, evicted) {
  const limit = memory.limit_bytes || 1;
  const parts = MEMORY_PARTS.filter(([key]) => isNumber(memory[key]));
  stack(byId("memory-bar"), parts.map(([key, name, look]) => ({ share: memory[key] / limit, look, title: `${name}: ${bytes(memory[key])}` })));
  byId("memory-bar").setAttribute("aria-label", `${bytes(memory.limit_bytes)}: ${parts.map(([key, name]) => `${name} ${percent(memory[key] / limit)}`).join(", ")}`);
  const list = byId("memory-parts");
  parts.forEach(([key, name, look, what], index) => {
    const item = list.children[index] ?? list.appendChild(el("li", {}, el("span", { class: `swatch ${look}`, "aria-hidden": "true" }),
      el("span", {}, `${name} `, el("data", { id: `memory-${key}` })), el("span", { class: "what" })));
    show(`memory-${key}`, memory[key], bytes(memory[key]));
    const advice = key === "dead_bytes" && memory[key] > 0 ? `; ${deadAdvice(memory[key] / limit, evicted)}` : "";
    setText(item.lastElementChild, `${percent(memory[key] / limit)}, ${what}${advice}`);
  });
}

// Upper bounds in seconds of the ranges that many TTL buckets are gathered in.
const RANGES = [10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, Infinity];
const MANY_BUCKETS = 10;

function ttlRows(buckets) {
  const never = (bucket) => bucket.ttl_seconds_max === null;
  const named = buckets.map((bucket) => ({ ...bucket, name: ttlName(bucket) }));
  if (named.length <= MANY_BUCKETS) return named;
  const rows = [];
  RANGES.forEach((end, index) => {
    const begin = index ? RANGES[index - 1] : 0;
    const inside = named.filter((bucket) => !never(bucket) && bucket.ttl_seconds_min >= begin && bucket.ttl_seconds_min < end);
    if (!inside.length) return;
    const sum = (key) => inside.reduce((total, bucket) => total + (bucket[key] ?? 0), 0);
    const name = end === Infinity ? `over ${brief(begin)}` : begin ? `${brief(begin)} to ${brief(end)}` : `under ${brief(end)}`;
    rows.push({ name, segment_bytes: sum("segment_bytes"), live_bytes: sum("live_bytes"), expired_bytes: sum("expired_bytes"), items: sum("items") });
  });
  return rows.concat(named.filter(never));
}

function ttlName({ ttl_seconds_min: least, ttl_seconds_max: most }) {
  if (most === null || most === undefined) return "never expires";
  const [from, to] = [brief(least), brief(most)];
  return from === to ? from : `${from} to ${to}`;
}

function showDivision(overview) {
  const ttl = ttlRows(overview.ttl_buckets ?? []);
  const most = Math.max(1, ...ttl.map((row) => row.segment_bytes));
  fill("ttl", ttl.map((row) => [row.name, [
    { share: row.live_bytes / most, look: "blue solid", title: `live ${bytes(row.live_bytes)}` },
    { share: row.expired_bytes / most, look: "orange hatch", title: `expired ${bytes(row.expired_bytes)}` },
    { share: (row.segment_bytes - row.live_bytes - row.expired_bytes) / most, look: "purple grain", title: "dead or not filled" },
  ], bytes(row.segment_bytes), percent(row.segment_bytes > 0 ? row.live_bytes / row.segment_bytes : null), count(row.items)]), "ttl-none");
  byId("pools-card").hidden = (overview.pools ?? []).length < 2;
  fill("pools", (overview.pools ?? []).map((pool) => [pool.name, [
    { share: pool.limit_bytes ? pool.used_bytes / pool.limit_bytes : 0, look: "blue solid", title: `${bytes(pool.used_bytes)} of ${bytes(pool.limit_bytes)}` },
  ], bytes(pool.used_bytes), count(pool.items), percent(pool.now.hit_ratio)]), "pools-none");
}

const sentence = (name) => name.replaceAll("_", " ");
const REASONS = {
  "evictions memory": "Evicted: memory was full",
  "evictions index_full": "Evicted: index was full",
  "expirations segment": "Expired with its whole segment",
  "expirations flushed": "Flushed",
};

function showReasons(overview) {
  const rows = [];
  for (const [kind, look, word] of [["evictions", "orange solid", "Evicted"], ["expirations", "blue hatch", "Expired"]]) {
    for (const [reason, total] of Object.entries(overview[kind]?.by_reason ?? {})) {
      if (!total) continue;
      rows.push({ name: REASONS[`${kind} ${reason}`] ?? `${word}: ${sentence(reason)}`, total, look, now: overview.now[`${kind}_per_second`][reason] ?? null });
    }
  }
  const all = rows.reduce((sum, row) => sum + row.total, 0);
  fill("reasons", rows.map((row) => [row.name, [{ share: row.total / all, look: row.look, title: percent(row.total / all) }], rate(row.now), count(row.total)]), "reasons-none");
}

function showHotKeys(keys, hidden) {
  setText(byId("hot-none"), hidden ? `Keys are not told: ${hidden}.` : "No key stands out yet.");
  const most = Math.max(1e-9, ...keys.map((key) => key.share));
  fill("hot", keys.map((key) => [key.key, [{ share: key.share / most, look: "blue solid", title: percent(key.share) }], percent(key.share), rate(key.per_second),
    percent(key.hit_ratio), bytes(key.bytes), key.bytes === null ? DASH : key.ttl_seconds === null ? "none" : duration(key.ttl_seconds)]), "hot-none");
}

// Which of a command's counters are done and which are not; the others are parts of these.
const DONE = ["hits", "stored"];
const NOT_DONE = ["misses", "mismatches", "not_stored", "too_large", "out_of_memory"];
function totalsOf(counters) {
  if (typeof counters === "number") return { done: counters, not: null };
  const sum = (names) => names.reduce((total, name) => total + (counters[name] ?? 0), 0);
  return { done: sum(DONE), not: sum(NOT_DONE) };
}

function showCommands(overview) {
  const latencies = overview.latency_us ?? {};
  const names = [...new Set([...Object.keys(overview.commands ?? {}), ...Object.keys(latencies)])];
  const rows = names.map((name) => {
    const totals = name in overview.commands ? totalsOf(overview.commands[name]) : { done: null, not: null };
    return { name, ...totals, now: overview.now.commands_per_second[name] ?? null, latency: latencies[name] ?? {} };
  }).filter((row) => row.name === "get" || row.name === "set" || (row.done ?? 0) + (row.not ?? 0) + (row.latency.count ?? 0) > 0);
  fill("commands", rows.map(({ name, done, not, now, latency }) => [name, rate(now), count(done), count(not), ...["mean", "p50", "p90", "p99", "p999", "max"].map((key) => micros(latency.count ? latency[key] : null))]));
}

// The charts mark older ones, too.
const LISTED_EVENTS = 50;

function showEvents(all) {
  const events = all.slice(0, LISTED_EVENTS);
  const list = byId("events");
  while (list.children.length > events.length) list.lastElementChild.remove();
  events.forEach((event, index) => {
    const item = list.children[index] ?? list.appendChild(el("li", {}, el("time"), el("span", { class: "kind" }), el("span", { class: "reason" })));
    const [time, kind, reason] = item.children;
    setText(time, clockSeconds(event.time_unix_ms));
    time.dateTime = new Date(event.time_unix_ms).toISOString();
    setText(kind, sentence(String(event.kind)));
    const last = event.last_unix_ms > event.time_unix_ms + 1000 ? `, last at ${clockSeconds(event.last_unix_ms)}` : "";
    setText(reason, event.count > 1 ? `${event.reason} (${count(event.count)} times${last})` : String(event.reason));
  });
  list.hidden = events.length === 0;
  if (list.scrollHeight > list.clientHeight) list.tabIndex = 0;
  byId("events-none").hidden = events.length > 0;
}

function showServer(overview) {
  const { connections, network, segments, memory } = overview;
  const facts = [
    ["Version", `${overview.version}, speaks memcached ${overview.protocol_version}`],
    ["Started", `${new Date(overview.started_unix_ms).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" })}, ${duration(overview.uptime_seconds)} ago`],
    ["Process", `${overview.pid}, ${count(overview.threads)} worker threads`],
    ["Resident memory", bytes(memory.resident_bytes)],
    ["Segments", segments ? `${count(segments.total)}: ${["free", "open", "sealed", "retired"].filter((key) => isNumber(segments[key])).map((key) => `${count(segments[key])} ${key}`).join(", ")}` : DASH],
    ["Segments reclaimed", segments ? `${count(segments.expired_total)} expired, ${count(segments.evicted_total)} evicted, ${count(segments.compacted_total)} compacted` : DASH],
    ["Connections", `${count(connections.accepted_total)} accepted, ${count(connections.rejected_total)} refused`],
    ["Network", `${bytes(network.bytes_read_total)} received, ${bytes(network.bytes_written_total)} sent`],
  ];
  showFacts("server", facts);
}

function showFacts(listId, facts) {
  const list = byId(listId);
  facts.forEach(([name, text], index) => {
    if (!list.children[index * 2]) list.append(el("dt", {}, name), el("dd"));
    setText(list.children[index * 2 + 1], text);
  });
}

// The verdict, and three numbers: hits now, and what the curve says of other sizes.
function showHeadline({ headline, now, pools }) {
  byId("headline").className = `headline ${headline.level}`;
  setText(byId("headline-text"), headline.sentence);
  show("headline-now", now.hit_ratio, percent(now.hit_ratio));
  const of = headline.pool !== null && (pools ?? []).filter((pool) => pool.kind === "store").length > 1 ? `Hits of ${headline.pool} with` : "With";
  for (const [id, value, memory] of [["headline-twice", headline.hit_ratio_twice_memory, "twice the memory"], ["headline-half", headline.hit_ratio_half_memory, "half of it"]]) {
    byId(id).closest("div").hidden = !isNumber(value);
    setText(byId(id).closest("div").firstElementChild, `${of} ${memory}`);
    show(id, value, percent(value));
  }
}

// On a narrow screen the memory follows the verdict, and the other sections begin folded; their titles open them.
function foldOnPhones() {
  const narrow = matchMedia("(max-width: 620px)");
  const memory = byId("memory");
  const [first, wide] = [byId("now"), memory.nextElementSibling];
  const turn = (section, isFolded) => {
    section.classList.toggle("folded", isFolded);
    section.querySelector("h2").setAttribute("aria-expanded", String(!isFolded));
  };
  const apply = () => {
    memory.parentNode.insertBefore(memory, narrow.matches ? first : wide);
    for (const section of document.querySelectorAll(".fold")) {
      const title = section.querySelector("h2");
      if (narrow.matches) {
        title.tabIndex = 0;
        title.setAttribute("role", "button");
        turn(section, true);
      } else {
        for (const name of ["tabindex", "role", "aria-expanded"]) title.removeAttribute(name);
        section.classList.remove("folded");
      }
    }
  };
  for (const section of document.querySelectorAll(".fold")) {
    const title = section.querySelector("h2");
    const act = () => { if (narrow.matches) turn(section, !section.classList.contains("folded")); };
    title.addEventListener("click", act);
    title.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      act();
    });
  }
  document.querySelector(".skip").addEventListener("click", () => { if (narrow.matches) turn(byId("over-time"), false); });
  narrow.addEventListener("change", apply);
  apply();
}

// Steps of a sparkline, over the time that the page keeps in seconds.
const SPARK_STEPS = 60;
const SPARKS = {
  ratio: hitRatioOf, throughput: (points) => meanOf("gets")(points) + meanOf("sets")(points), latency: highestOf("p99"),
  memory: meanOf("used"), items: meanOf("items"), connections: meanOf("connections"),
};

// The last 15 minutes of each tile, from 0 to the highest value.
function showSparks(points, now) {
  const groups = Array.from({ length: SPARK_STEPS }, () => []);
  for (const point of points) {
    const step = Math.floor(SPARK_STEPS * (1 - (now - point.time) / LONG_MS));
    if (step >= 0) groups[Math.min(step, SPARK_STEPS - 1)].push(point);
  }
  for (const [name, of] of Object.entries(SPARKS)) {
    const values = groups.map((group) => (group.length ? of(group) : null));
    const most = Math.max(1e-9, ...values.filter(isNumber));
    const place = (value, step) => `${((step * 100) / (SPARK_STEPS - 1)).toFixed(1)} ${(23 - (22 * value) / most).toFixed(1)}`;
    const parts = values.map((value, step) => (isNumber(value) ? `${isNumber(values[step - 1]) ? "L" : "M"}${place(value, step)}` : ""));
    byId(`spark-${name}`).firstElementChild.setAttribute("d", parts.join(""));
  }
}

// The tiles: rates, ratios and latencies of the last minute, and gauges.
function showTiles(overview) {
  const { memory, connections, now, commands: { get } } = overview;
  const ratio = now.hit_ratio;
  show("hit-ratio", ratio, percent(ratio));
  setText(byId("hit-ratio-sub"), `${isNumber(ratio) ? `in the last minute, ${percent(1 - ratio)} misses` : "no gets in the last minute"}; ${get.hits + get.misses > 0 ? `${percent(ratioOf(get.hits, get.misses))} since start` : "none since start"}`);
  const { get: gets, set: sets } = now.commands_per_second;
  const throughput = isNumber(gets) ? gets + sets : null;
  show("throughput", throughput, rate(throughput));
  setText(byId("throughput-sub"), `${rate(gets)} gets, ${rate(sets)} sets`);
  const latency = overview.latency_us?.get?.count ? overview.latency_us.get : {};
  show("get-p99", latency.p99 ?? null, micros(latency.p99));
  setText(byId("get-p99-sub"), latency.count ? `p50 ${micros(latency.p50)}, p99.9 ${micros(latency.p999)}` : "no gets in the last minute");
  show("memory-used", memory.used_bytes, bytes(memory.used_bytes));
  setText(byId("memory-used-sub"), `${percent(memory.limit_bytes ? memory.used_bytes / memory.limit_bytes : null)} of ${bytes(memory.limit_bytes)}`);
  show("items", overview.items, count(overview.items));
  setText(byId("items-sub"), overview.items > 0 ? `${bytes(memory.live_bytes / overview.items)} each` : "nothing is stored yet");
  show("connections", connections.open, count(connections.open));
  setText(byId("connections-sub"), `of at most ${count(connections.limit)}`);
  setText(byId("about"), `${overview.version}, up ${duration(overview.uptime_seconds)}`);
  document.title = `${isNumber(ratio) ? `${percent(ratio)} hits, ` : ""}${rate(throughput)} – Ebbtide`;
}
