// The fleet: one row for each node, worst first in the sentence. Texts go in as text, never as markup.

const byId = (id) => document.getElementById(id);
const WORST = ["bad", "attention", "unknown", "good"];

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function show(id, value, text) {
  setText(byId(id), text);
  byId(id).value = isNumber(value) ? String(value) : "";
}

const sum = (rows, key) => rows.reduce((total, row) => total + (row[key] ?? 0), 0);

function showFleet({ nodes, skew }) {
  const there = nodes.filter((row) => row.error === null);
  const silent = nodes.filter((row) => row.error !== null);
  const worst = [...there].sort((a, b) => WORST.indexOf(a.level) - WORST.indexOf(b.level))[0];
  const level = silent.length ? "bad" : (worst?.level ?? "unknown");
  byId("headline").className = `headline ${level}`;
  const names = silent.map((row) => row.node).join(", ");
  const sentence = silent.length ? `${silent.length} of ${nodes.length} nodes do not answer: ${names}.`
    : worst && worst.level !== "good" ? `${worst.node}: ${worst.sentence}` : `All ${nodes.length} nodes answer.`;
  setText(byId("headline-text"), sentence);
  const gets = sum(there, "gets_per_second");
  const hits = there.reduce((total, row) => total + (row.hit_ratio ?? 0) * (row.gets_per_second ?? 0), 0);
  show("hits", gets > 0 ? hits / gets : null, percent(gets > 0 ? hits / gets : null));
  show("gets", gets, there.length ? rate(gets) : DASH);
  show("memory", sum(there, "used_bytes"), there.length ? bytes(sum(there, "used_bytes")) : DASH);
  const factor = (value) => (isNumber(value) ? `${digits(value)} times the mean` : DASH);
  setText(byId("skew"), there.length > 1 ? `Busiest node: ${factor(skew.gets)} of gets, ${factor(skew.items)} of items.` : "");
  showRows(nodes);
}

function showRows(nodes) {
  const body = byId("nodes").tBodies[0];
  while (body.rows.length > nodes.length) body.deleteRow(-1);
  nodes.forEach((row, at) => {
    const line = body.rows[at] ?? newRow(body);
    const since = row.answered_unix_ms === null ? "" : ` since ${clockSeconds(row.answered_unix_ms)}`;
    const verdict = row.error === null ? row.sentence ?? DASH : `Does not answer${since}: ${row.error}`;
    const used = isNumber(row.limit_bytes) && row.limit_bytes > 0 ? row.used_bytes / row.limit_bytes : null;
    line.className = row.error === null ? "" : "silent";
    const texts = [row.node, verdict, null, percent(row.hit_ratio), rate(row.gets_per_second), rate(row.evictions_per_second), `${bytes(row.used_bytes)} of ${bytes(row.limit_bytes)}`, count(row.items)];
    texts.forEach((text, index) => { if (text !== null) setText(line.cells[index], text); });
    const bar = line.cells[2].firstElementChild.firstElementChild;
    bar.style.width = `${Math.min(100, (used ?? 0) * 100).toFixed(1)}%`;
    bar.title = percent(used);
  });
}

function newRow(body) {
  const line = body.insertRow();
  // On a phone rows are grids; without a role they would be no rows any more.
  line.setAttribute("role", "row");
  for (const head of byId("nodes").tHead.rows[0].cells) {
    const cell = document.createElement(line.cells.length === 0 ? "th" : "td");
    if (line.cells.length === 0) cell.scope = "row";
    cell.setAttribute("role", line.cells.length === 0 ? "rowheader" : "cell");
    cell.className = head.className;
    line.append(cell);
  }
  const bar = document.createElement("div");
  bar.className = "bar";
  bar.setAttribute("aria-hidden", "true");
  const part = document.createElement("i");
  part.className = "blue solid";
  bar.append(part);
  line.cells[2].append(bar);
  return line;
}

async function poll() {
  try {
    const answer = await fetch("/api/fleet", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    showFleet(await answer.json());
  } catch {
    byId("headline").className = "headline bad";
    setText(byId("headline-text"), "The program that serves this page does not answer.");
  }
  setTimeout(poll, 1000);
}
poll();
