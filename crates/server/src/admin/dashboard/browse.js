// The key browser: keys in memory and on flash that hold a text, some at a time, and one value after a question.

const browser = { rows: [], next: null, looked: 0, filter: "", busy: false, shown: null };
// Answers without a key that are skipped before the reader is asked whether to look on.
const MAX_EMPTY = 20;

// The answer, or the server's words for why there is none.
async function askOrRefuse(path, headers) {
  const answer = await fetch(path, { cache: "no-store", headers, signal: AbortSignal.timeout(ANSWER_MS) });
  if (answer.ok) return answer.json();
  throw new Error((await answer.text()).trim() || `the server answers ${answer.status}`);
}

async function browse(path, isNew) {
  if (browser.busy) return;
  browser.busy = true;
  try {
    let answer = await askOrRefuse(path);
    for (let empty = 0; !answer.entries.length && answer.next !== null && empty < MAX_EMPTY; empty += 1) {
      answer = await askOrRefuse(`/api/entries?next=${answer.next}`);
    }
    const { entries, next, looked_at } = answer;
    Object.assign(browser, { rows: isNew ? entries : [...browser.rows, ...entries], next, looked: looked_at });
    showEntries();
  } catch (error) {
    setText(byId("entries-note"), `${error.message.charAt(0).toUpperCase()}${error.message.slice(1)}.`.replace("..", "."));
    byId("entries-more").hidden = true;
  } finally {
    browser.busy = false;
  }
}

function showEntries() {
  const { rows, next, looked, filter } = browser;
  const what = filter ? `with \u201c${filter}\u201d ` : "";
  const rest = next === null ? "that is all" : "there are more to look at";
  setText(byId("entries-note"), `${count(rows.length)} keys ${what}among ${count(looked)} objects; ${rest}.`);
  fill("entries", rows.map((row) => [
    row.key, row.pool, bytes(row.bytes), row.ttl_seconds === null ? "none" : duration(row.ttl_seconds), isNumber(row.idle_seconds) ? duration(row.idle_seconds) : DASH, row.unread === null ? DASH : row.unread ? "never" : "yes", row.on_flash ? "on flash" : "",
  ]));
  rows.forEach((row, index) => {
    if (row.on_flash) return;
    const cell = byId("entries").tBodies[0].rows[index].cells[6];
    const button = el("button", { type: "button", "aria-label": `Value of ${row.key}` }, "Value");
    button.addEventListener("click", () => askForValue(row, button));
    cell.replaceChildren(button);
  });
  byId("entries-scroll").hidden = rows.length === 0;
  byId("entries-more").hidden = next === null;
}

function askForValue(row, opener) {
  Object.assign(browser, { shown: row, opener });
  setText(byId("value-title"), row.key);
  setText(byId("value-note"), "The value may hold personal data, and everybody who sees this screen sees it. Show it?");
  byId("value-text").hidden = true;
  byId("value-show").hidden = false;
  byId("value").showModal();
}

async function showValue() {
  const { shown } = browser;
  byId("value-show").hidden = true;
  byId("value-close").focus();
  try {
    const told = await askOrRefuse(`/api/value?id=${shown.id}`, { "X-Ebbtide-Confirm": "value" });
    const parts = [bytes(told.value_bytes), `flags ${told.flags}`, told.ttl_seconds === null ? "never expires" : `expires in ${duration(told.ttl_seconds)}`];
    if (!told.is_text) parts.push("not text: other bytes as \\x and two digits");
    if (told.is_cut) parts.push("only the beginning is shown");
    setText(byId("value-note"), `${parts.join(", ")}.`);
    setText(byId("value-text"), told.text);
    byId("value-text").hidden = false;
  } catch (error) {
    setText(byId("value-note"), `${error.message}.`);
  }
}

// Where keys are not told there is no browser.
function showBrowser(hidden) {
  byId("browse").hidden = Boolean(hidden);
}

byId("browse-form").addEventListener("submit", (event) => {
  event.preventDefault();
  browser.filter = byId("browse-filter").value;
  browse(`/api/entries?filter=${encodeURIComponent(browser.filter)}`, true);
});
byId("entries-more").addEventListener("click", () => browse(`/api/entries?next=${browser.next}`, false));
byId("value-show").addEventListener("click", showValue);
byId("value-close").addEventListener("click", () => byId("value").close());
byId("value").addEventListener("close", () => {
  setText(byId("value-text"), "");
  browser.opener?.focus();
});
