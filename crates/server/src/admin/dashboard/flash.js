// The section about flash; it is not there without flash.

const TIERS = { memory: "Memory", large: "Flash, large objects", small: "Flash, small objects" };
const CAUSES = {
  large_objects: "Large objects", large_again: "Large objects, again", large_frames: "Frames of regions",
  small_log: "Log of small objects", small_pages: "Pages of small objects", small_zeros: "Zeros, once, before these pages", superblock: "Superblock",
};
const NOT_TAKEN = {
  "refusals expires_soon": "Would expire soon", "refusals too_small": "Too small", "refusals policy": "Not worth a write", "refusals budget": "Over the write budget",
  "refusals displaced": "Displaced by what was read",
  "drops expired": "Had expired", "drops too_large": "Too large", "drops behind": "The device did not keep up", "drops no_region": "No region was free",
  "drops memory": "The index has no memory", "drops crowded": "Too many of one set", "drops overtaken": "A flush came between",
  "drops closed": "The server was stopping", "drops failed": "The device had failed",
};
const HEALTH = { healthy: "Healthy", degraded: "Degraded: errors or stalls not long ago", failed: "Failed: not used any more; all is served from memory" };

// Rows of a table with shares, of an object of numbers; zeros are left out.
function shares(tableId, numbers, names, look, format) {
  const rows = Object.entries(numbers).filter(([, number]) => number > 0);
  const all = rows.reduce((sum, [, number]) => sum + number, 0);
  fill(tableId, rows.map(([key, number]) => [names[key] ?? sentence(key), [{ share: number / all, look, title: percent(number / all) }], percent(number / all), format(number)]), `${tableId}-none`);
}

function life(days) {
  if (!isNumber(days)) return "endless: nothing is written";
  if (days >= 36_500) return "over 100 years";
  return days >= 730 ? `${digits(days / 365)} years` : `${digits(days)} days`;
}

function latencyFact(latency) {
  return latency.count ? `p50 ${micros(latency.p50)}, p99 ${micros(latency.p99)}, p99.9 ${micros(latency.p999)}` : "none yet";
}

function showFlash(flash) {
  byId("flash").hidden = !flash;
  if (!flash) return;
  const used = flash.capacity_bytes ? flash.used_bytes / flash.capacity_bytes : 0;
  stack(byId("flash-bar"), [{ share: used, look: "blue solid", title: `about ${bytes(flash.used_bytes)}` }]);
  byId("flash-bar").setAttribute("aria-label", `about ${percent(used)} of ${bytes(flash.capacity_bytes)}`);
  const { transfers, wear } = flash;
  const facts = [
    ["Device", HEALTH[flash.health] ?? flash.health],
    ["In use", `about ${bytes(flash.used_bytes)}, ${percent(used)} of ${bytes(flash.capacity_bytes)}; ${count(flash.objects)} objects`],
    ["Memory for it", bytes(flash.memory_bytes)],
    ["Found", `${count(flash.hits.large + flash.hits.small)} of ${count(flash.lookups_total)} looked for; ${count(flash.corrupt_total)} damaged`],
    ["Written", `${bytes(flash.written_bytes_total)} for ${bytes(flash.inserted_bytes_total)} of objects: ${digits(flash.write_amplification)} times`],
    ["Not written again", `${count(flash.unchanged_total)} objects that were there already`],
    ["Reads", latencyFact(flash.latency_us.read)],
    ["Writes", latencyFact(flash.latency_us.write)],
    ["Under way", `${count(transfers.under_way)}, at most ${count(transfers.most_under_way)}; ${count(transfers.refused_total)} found no space`],
    ["Errors", `${count(transfers.read_errors_total)} of reads, ${count(transfers.write_errors_total)} of writes`],
    ["Drive writes per day", `${digits(wear.drive_writes_per_day)}, as in the last hour; the drive itself writes ${wear.is_measured ? "" : "about "}${digits(wear.device_write_amplification)} times as much`],
    wear.life_used === null ? ["A new drive lasts", life(wear.life_days)]
      : ["The drive lasts", `${life(wear.life_days)}; it has used ${Math.round(100 * wear.life_used)} % of its life`],
  ];
  showFacts("flash-facts", facts);
  shares("flash-hits", flash.hits, TIERS, "blue solid", count);
  shares("flash-writes", flash.written_bytes, CAUSES, "green solid", bytes);
  setText(byId("flash-drops-none"), flash.inserted_bytes_total > 0 ? "Everything was taken." : "No object has left memory yet.");
  const named = (kind) => Object.entries(flash[kind]).map(([reason, number]) => [`${kind} ${reason}`, number]);
  shares("flash-drops", Object.fromEntries([...named("refusals"), ...named("drops")]), NOT_TAKEN, "orange solid", count);
}
