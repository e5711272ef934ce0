// Runs the npm package memjs, which speaks the binary protocol, through what it offers, against the server at HOST:PORT.
"use strict";

const assert = require("node:assert/strict");
const { Client } = require("memjs");
const { ALL_BYTES, NEAR_LIMIT, OVER_LIMIT, PATIENCE_MS, gone, run } = require("./check.js");

const client = Client.create(process.argv[2], { timeout: PATIENCE_MS / 1000, retries: 0, logger: { log() {} } });

async function read(key) {
  const { value } = await client.get(key);
  return value === null ? undefined : value.toString();
}

async function stores() {
  assert.deepEqual(await client.flush(), { [process.argv[2]]: true });
  assert.equal(await read("k"), undefined);
  assert.equal(await client.replace("k", "v", {}), false);
  await assert.rejects(client.append("k", "v"), /not stored/);
  assert.equal(await client.set("k", "v", {}), true);
  assert.equal(await read("k"), "v");
  assert.equal(await client.add("k", "w", {}), false);
  assert.equal(await client.replace("k", "w", {}), true);
  assert.equal(await client.append("k", "x"), true);
  // The client's prepend sends an append.
  assert.equal(await client.prepend("k", "y"), true);
  assert.equal(await read("k"), "wxy");
  assert.equal(await client.delete("k"), true);
  assert.equal(await client.delete("k"), false);
  assert.equal(await client.add("k", "v", {}), true);
  assert.equal(await read("k"), "v");
}

async function counts() {
  assert.equal((await client.increment("n", 1, { initial: 9, expires: 0 })).value, 9);
  assert.equal((await client.increment("n", 1, {})).value, 10);
  assert.equal((await client.decrement("n", 20, {})).value, 0);
}

async function many() {
  const keys = Array.from({ length: 500 }, (_, at) => `key${at}`);
  await Promise.all(keys.map((key) => client.set(key, `value of ${key}`, {})));
  const got = await Promise.all(keys.map(read));
  assert.deepEqual(got, keys.map((key) => `value of ${key}`));
}

async function values() {
  await client.set("k", ALL_BYTES, {});
  assert.deepEqual((await client.get("k")).value, ALL_BYTES);
  assert.equal(await client.set("large", NEAR_LIMIT, {}), true);
  assert.ok(NEAR_LIMIT.equals((await client.get("large")).value), "the large value came back otherwise");
  await assert.rejects(client.set("large", OVER_LIMIT, {}));
  assert.equal(await read("large"), undefined);
}

async function lives() {
  assert.equal(await client.set("short", "v", { expires: 1 }), true);
  for (const key of ["long", "touched"]) {
    assert.equal(await client.set(key, "v", { expires: 1000 }), true);
  }
  assert.equal(await client.touch("touched", 1), true);
  assert.equal(await client.touch("absent", 1), false);
  for (const key of ["short", "touched"]) {
    await gone(key, () => read(key));
  }
  assert.equal(await read("long"), "v");
}

async function statistics() {
  const { promise, resolve, reject } = deferred();
  client.stats((error, server, stats) => (error ? reject(error) : resolve(stats)));
  assert.equal((await promise).limit_maxbytes, String(64 << 20));
}

function deferred() {
  const answer = {};
  answer.promise = new Promise((resolve, reject) => Object.assign(answer, { resolve, reject }));
  return answer;
}

run([stores, counts, many, values, lives, statistics], () => client.quit());
