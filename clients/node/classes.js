// Prints "CLASS SETS" for each slab class that the npm package memcached or memjs reads from the server at HOST:PORT.
"use strict";

const [, , server, name] = process.argv;

function print(number, sets) {
  if (sets !== undefined) {
    console.log(`${number} ${sets}`);
  }
}

function readByMemcached() {
  const Memcached = require("memcached");
  const client = new Memcached(server);
  client.slabs((error, answers) => {
    if (error) {
      throw error;
    }
    for (const [number, slab] of Object.entries(answers[0])) {
      print(number, slab.cmd_set);
    }
    client.end();
  });
}

function readByMemjs() {
  const { Client } = require("memjs");
  const client = Client.create(server);
  client.statsWithKey("slabs", (error, _, stats) => {
    if (error) {
      throw error;
    }
    for (const [key, sets] of Object.entries(stats)) {
      const found = /^(\d+):cmd_set$/.exec(key);
      if (found) {
        print(found[1], sets);
      }
    }
    client.close();
  });
}

({ memcached: readByMemcached, memjs: readByMemjs })[name]();
