// Numbers as people read them. `null` and what is not a number become a dash: never NaN on the page.

const DASH = "–";
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// Three significant digits, and no zeros behind the point that say nothing.
function digits(value) {
  const size = Math.abs(value);
  return String(Number(value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2)));
}

function scaled(value, base, units) {
  let step = 0;
  while (step < units.length - 1 && Math.abs(value) >= base * 0.9995) {
    value /= base;
    step += 1;
  }
  return digits(value) + units[step];
}

// Exact below a hundred thousand, with a narrow space between thousands.
function count(value) {
  if (!isNumber(value)) return DASH;
  if (Math.abs(value) < 100_000) return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  return scaled(value, 1000, ["", "\u00a0k", "\u00a0M", "\u00a0G", "\u00a0T"]);
}

function rate(value) {
  if (!isNumber(value)) return DASH;
  return `${scaled(value, 1000, ["", "\u00a0k", "\u00a0M", "\u00a0G"])}/s`;
}

function bytes(value) {
  if (!isNumber(value)) return DASH;
  return scaled(value, 1024, ["\u00a0B", "\u00a0KiB", "\u00a0MiB", "\u00a0GiB", "\u00a0TiB"]);
}

const byteRate = (value) => (isNumber(value) ? `${bytes(value)}/s` : DASH);

function micros(value) {
  if (!isNumber(value)) return DASH;
  if (value < 999.5) return `${digits(value)}\u00a0µs`;
  if (value < 999_500) return `${digits(value / 1000)}\u00a0ms`;
  return `${digits(value / 1_000_000)}\u00a0s`;
}

// Rounded towards the middle: only all is 100 %, only nothing is 0 %.
function percent(ratio) {
  if (!isNumber(ratio)) return DASH;
  const value = ratio * 100;
  if (value > 99.9 && value < 100) return `${Math.floor(value * 100) / 100}\u00a0%`;
  if (value > 0 && value < 0.1) return value < 0.01 ? "<\u00a00.01\u00a0%" : `${Number(value.toFixed(2))}\u00a0%`;
  return `${Number(value.toFixed(1))}\u00a0%`;
}

function duration(seconds) {
  if (!isNumber(seconds)) return DASH;
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [[Math.floor(whole / 86400), "d"], [Math.floor(whole / 3600) % 24, "h"], [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"]];
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return "0\u00a0s";
  return parts.slice(first, first + 2).filter(([value]) => value > 0).map(([value, unit]) => `${value}\u00a0${unit}`).join(" ");
}

// The end of a range: one unit is enough.
function brief(seconds) {
  const [unit, name] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([size]) => seconds >= 2 * size) ?? [1, "s"];
  return `${Number((seconds / unit).toFixed(1))}\u00a0${name}`;
}

const clock = (ms, options) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...options });
const day = (ms) => new Date(ms).toLocaleDateString([], { weekday: "short", day: "numeric", month: "short" });
const clockSeconds = (ms) => clock(ms, { second: "2-digit" });

const ratioOf = (part, rest) => (isNumber(part) && isNumber(rest) && part + rest > 0 ? part / (part + rest) : null);
