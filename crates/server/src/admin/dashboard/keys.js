// Use of memory by key prefix and by size; the largest objects; the decisions of the controller of pools.

const share = (value) => (isNumber(value) ? percent(value) : DASH);

// Idle time and age at eviction, and what was never read.
const evictedCells = (row) => [duration(row.evicted_idle_seconds), duration(row.evicted_age_seconds), share(row.evicted_unread_share)];

const EVICTED_GROUPS = {
  pools: (row) => row.pool,
  sizes: (row) => `to ${bytes(row.bytes_max + 1)}`,
  ttls: ttlName,
};

// Evicted objects by the group that the reader has chosen.
function showEvicted(evicted) {
  live.evicted = evicted;
  const by = byId("evicted-by").value;
  const rows = evicted[by].filter((row) => row.evictions_per_second > 0);
  const most = Math.max(1e-9, ...rows.map((row) => row.evictions_per_second));
  fill("evicted", rows.slice(0, 20).map((row) => {
    const [idle, age, unread] = evictedCells(row);
    const part = row.evictions_per_second / most;
    const known = row.evicted_unread_share ?? 0;
    return [EVICTED_GROUPS[by](row), [{ share: part * (1 - known), look: "blue solid", title: "read" }, { share: part * known, look: "orange hatch", title: "unread" }], rate(row.evictions_per_second), unread, idle, age];
  }), "evicted-none");
}

function showKeys(answer) {
  const { prefixes, sizes, largest, census, hidden, delimiter } = answer;
  const about = census === null ? "" : census.complete ? `all ${count(census.objects_looked_at)} objects` : `a sample of ${count(census.objects_looked_at)} objects`;
  const note = hidden ? `Keys are not told: ${hidden}.` : `Keys up to their first \u201c${delimiter}\u201d. Memory is from ${about || "no object yet"}; traffic and evictions are of the last minute, sampled. Unread: no read was counted since the write, or since the last eviction that the object survived.`;
  setText(byId("keys-note"), note);
  // Objects of the last seconds are not in the census yet.
  const none = live.overview.items > 0 ? "The objects were not looked at yet; a look is due every 2 to 15 s." : "Nothing is stored yet.";
  for (const id of ["prefixes-none", "sizes-none", "largest-none"]) setText(byId(id), none);
  const most = Math.max(1e-9, ...prefixes.map((row) => row.memory_share ?? 0));
  fill("prefixes", prefixes.map((row) => [
    row.prefix,
    [
      { share: ((row.memory_share ?? 0) * (1 - (row.unread_share ?? 0))) / most, look: "blue solid", title: "read" },
      { share: ((row.memory_share ?? 0) * (row.unread_share ?? 0)) / most, look: "orange hatch", title: "unread" },
    ],
    `${bytes(row.bytes)}, ${share(row.memory_share)}`,
    count(row.items),
    share(row.unread_share),
    rate(row.gets_per_second),
    share(row.hit_ratio),
    rate(row.sets_per_second),
    rate(row.evictions_per_second),
    ...evictedCells(row),
  ]), "prefixes-none");
  const widest = Math.max(1, ...sizes.map((row) => row.bytes));
  fill("sizes", sizes.map((row) => [
    `to ${bytes(row.bytes_max + 1)}`,
    [
      { share: (row.bytes * (1 - row.unread_share)) / widest, look: "blue solid", title: "read" },
      { share: (row.bytes * row.unread_share) / widest, look: "orange hatch", title: "unread" },
    ],
    bytes(row.bytes), count(row.items), share(row.unread_share),
  ]), "sizes-none");
  showEvicted(answer.evicted);
  const longest = Math.max(1, ...largest.map((row) => row.bytes));
  byId("largest-title").hidden = Boolean(hidden);
  fill("largest", largest.slice(0, 10).map((row) => [
    row.key, [{ share: row.bytes / longest, look: "blue solid", title: bytes(row.bytes) }], bytes(row.bytes), row.ttl_seconds === null ? "none" : duration(row.ttl_seconds), duration(row.idle_seconds), row.unread ? "never" : "yes", share(row.hit_ratio),
  ]), "largest-none");
  if (hidden) for (const id of ["prefixes-none", "largest-none"]) byId(id).hidden = true;
}

function showDecisions({ decisions }) {
  const list = byId("decisions");
  const shown = decisions.slice(0, 20);
  while (list.children.length > shown.length) list.lastElementChild.remove();
  shown.forEach((decision, index) => {
    const item = list.children[index] ?? list.appendChild(el("li", {}, el("time"), el("span", { class: "kind" }), el("span", { class: "reason" })));
    const [time, kind, reason] = item.children;
    setText(time, clockSeconds(decision.time_unix_ms));
    time.dateTime = new Date(decision.time_unix_ms).toISOString();
    setText(kind, decision.refusal ? "refused" : decision.undo ? "undone" : decision.applied ? "applied" : "dry run");
    setText(reason, decision.refusal ? `${decision.reason}: ${decision.refusal}` : decision.reason);
  });
  list.hidden = shown.length === 0;
  byId("decisions-none").hidden = shown.length > 0;
}
