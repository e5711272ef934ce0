// Who uses the memory, by key prefix and by size; the largest objects; the decisions of the controller of pools.

const share = (value) => (isNumber(value) ? percent(value) : DASH);

function showKeys(answer) {
  const { prefixes, sizes, largest, census, hidden, delimiter } = answer;
  const about = census === null ? "" : census.complete ? `all ${count(census.objects_looked_at)} objects` : `a sample of ${count(census.objects_looked_at)} objects`;
  const note = hidden ? `Keys are not told: ${hidden}.` : `Keys up to their first \u201c${delimiter}\u201d. Memory is from ${about || "no object yet"}; traffic is of the last seconds, sampled.`;
  setText(byId("keys-note"), note);
  // Objects of the last seconds are not in the census yet.
  const none = live.overview.items > 0 ? "The objects were not looked at yet; a look is due every 2 to 15 s." : "Nothing is stored yet.";
  for (const id of ["prefixes-none", "sizes-none", "largest-none"]) setText(byId(id), none);
  const most = Math.max(1e-9, ...prefixes.map((row) => row.memory_share ?? 0));
  fill("prefixes", prefixes.map((row) => [
    row.prefix,
    [
      { share: ((row.memory_share ?? 0) * (1 - (row.never_read_share ?? 0))) / most, look: "blue solid", title: "read at least once" },
      { share: ((row.memory_share ?? 0) * (row.never_read_share ?? 0)) / most, look: "orange hatch", title: "never read" },
    ],
    `${bytes(row.bytes)}, ${share(row.memory_share)}`,
    count(row.items),
    share(row.never_read_share),
    rate(row.gets_per_second),
    share(row.hit_ratio),
    rate(row.sets_per_second),
    rate(row.evictions_per_second),
    isNumber(row.evicted_idle_seconds) ? duration(row.evicted_idle_seconds) : DASH,
    share(row.evicted_never_read_share),
  ]), "prefixes-none");
  const widest = Math.max(1, ...sizes.map((row) => row.bytes));
  fill("sizes", sizes.map((row) => [
    `to ${bytes(row.bytes_max + 1)}`,
    [
      { share: (row.bytes * (1 - row.never_read_share)) / widest, look: "blue solid", title: "read at least once" },
      { share: (row.bytes * row.never_read_share) / widest, look: "orange hatch", title: "never read" },
    ],
    bytes(row.bytes), count(row.items), share(row.never_read_share),
  ]), "sizes-none");
  const longest = Math.max(1, ...largest.map((row) => row.bytes));
  byId("largest-title").hidden = Boolean(hidden);
  fill("largest", largest.slice(0, 10).map((row) => [
    row.key, [{ share: row.bytes / longest, look: "blue solid", title: bytes(row.bytes) }], bytes(row.bytes), row.ttl_seconds === null ? "none" : duration(row.ttl_seconds), duration(row.idle_seconds), row.never_read ? "never" : "yes", share(row.hit_ratio),
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
    setText(kind, decision.undo ? "undone" : decision.applied ? "applied" : "dry run");
    setText(reason, decision.reason);
  });
  list.hidden = shown.length === 0;
  byId("decisions-none").hidden = shown.length > 0;
}
