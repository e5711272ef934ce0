// What both programs expect, and the values that they store.
"use strict";

const assert = require("node:assert/strict");

const PATIENCE_MS = 60_000;
const ALL_BYTES = Buffer.concat([
  Buffer.from(Array.from({ length: 1024 }, (_, at) => at % 256)),
  Buffer.from("\r\nEND\r\nVALUE k 0 1\r\n"),
]);
// Without line ends: one of the clients escapes them, which makes the value longer.
const NEAR_LIMIT = Buffer.alloc((1 << 20) - 512, "0123456789abcdef");
const OVER_LIMIT = Buffer.alloc((1 << 20) + 1, "x");

/** Polls until `read` gives nothing. */
async function gone(what, read) {
  const start = Date.now();
  while ((await read()) !== undefined) {
    assert.ok(Date.now() - start < PATIENCE_MS, `${what} did not expire`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Runs the steps in order; the exit code tells how it went. */
async function run(steps, close) {
  for (const step of steps) {
    try {
      await step();
    } catch (error) {
      console.error(`${step.name}: ${error.stack}`);
      process.exit(1);
    }
  }
  close();
  // A client that waits before it reconnects would keep the process alive.
  process.exit(0);
}

module.exports = { ALL_BYTES, NEAR_LIMIT, OVER_LIMIT, PATIENCE_MS, gone, run };
