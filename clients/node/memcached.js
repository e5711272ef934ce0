// Runs the npm package memcached through what it offers, against the server at HOST:PORT.
"use strict";

const assert = require("node:assert/strict");
const Memcached = require("memcached");
const { ALL_BYTES, NEAR_LIMIT, OVER_LIMIT, PATIENCE_MS, gone, run } = require("./check.js");

const options = { timeout: PATIENCE_MS, retries: 0, maxValue: 4 << 20 };
const client = new Memcached(process.argv[2], options);
// A refused value makes the client take the server for dead for a while; hence one of its own.
const refused = new Memcached(process.argv[2], options);

function ask(command, ...words) {
  return askWith(client, command, ...words);
}

function askWith(client, command, ...words) {
  return new Promise((resolve, reject) => {
    client[command](...words, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

async function stores() {
  await ask("flush");
  assert.equal(await ask("get", "k"), undefined);
  await assert.rejects(ask("replace", "k", "v", 0), /not stored/);
  await assert.rejects(ask("append", "k", "v"), /not stored/);
  assert.equal(await ask("set", "k", "v", 0), true);
  assert.equal(await ask("get", "k"), "v");
  await assert.rejects(ask("add", "k", "w", 0), /not stored/);
  assert.equal(await ask("replace", "k", "w", 0), true);
  assert.equal(await ask("append", "k", "x"), true);
  assert.equal(await ask("prepend", "k", "u"), true);
  assert.equal(await ask("get", "k"), "uwx");
  assert.equal(await ask("del", "k"), true);
  assert.equal(await ask("del", "k"), false);
  assert.equal(await ask("add", "k", "v", 0), true);
  assert.equal(await ask("get", "k"), "v");
}

async function tokens() {
  await ask("set", "k", "1", 0);
  const first = await ask("gets", "k");
  assert.equal(first.k, "1");
  assert.equal(await ask("cas", "k", "2", first.cas, 0), true);
  assert.equal(await ask("cas", "k", "3", first.cas, 0), false);
  assert.equal(await ask("get", "k"), "2");
}

async function counts() {
  assert.equal(await ask("incr", "n", 1), false);
  await ask("set", "n", "9", 0);
  assert.equal(await ask("incr", "n", 1), 10);
  assert.equal(await ask("decr", "n", 20), 0);
  await ask("set", "word", "word", 0);
  await assert.rejects(ask("incr", "word", 1), /non-numeric/);
}

async function many() {
  const wanted = {};
  for (let at = 0; at < 500; at++) {
    wanted[`key${at}`] = `value${at}`;
  }
  await Promise.all(Object.entries(wanted).map(([key, value]) => ask("set", key, value, 0)));
  const got = await ask("getMulti", [...Object.keys(wanted), "absent"]);
  assert.deepEqual({ ...got }, wanted);
}

async function values() {
  await ask("set", "k", ALL_BYTES, 0);
  assert.deepEqual(await ask("get", "k"), ALL_BYTES);
  await ask("set", "k", { an: ["object", 1.5] }, 0);
  assert.deepEqual(await ask("get", "k"), { an: ["object", 1.5] });
  await ask("set", "k", "", 0);
  assert.equal(await ask("get", "k"), "");
  assert.equal(await ask("set", "large", NEAR_LIMIT, 0), true);
  assert.ok(NEAR_LIMIT.equals(await ask("get", "large")), "the large value came back otherwise");
  // The client answers a refusal of the server with false.
  assert.equal(await askWith(refused, "set", "large", OVER_LIMIT, 0), false);
  assert.equal(await ask("get", "large"), undefined);
}

async function lives() {
  assert.equal(await ask("set", "short", "v", 1), true);
  for (const key of ["long", "touched"]) {
    assert.equal(await ask("set", key, "v", 1000), true);
  }
  assert.equal(await ask("touch", "touched", 1), true);
  for (const key of ["short", "touched"]) {
    await gone(key, () => ask("get", key));
  }
  assert.equal(await ask("get", "long"), "v");
}

run([stores, tokens, counts, many, values, lives], () => {
  client.end();
  refused.end();
});
