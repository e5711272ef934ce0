<?php
// Runs PHP's memcached extension through what it offers, against the server at HOST:PORT, in the protocol text or binary.

declare(strict_types=1);

const NEAR_LIMIT = (1 << 20) - 512;
const OVER_LIMIT = (1 << 20) + 1;
const PATIENCE_SECONDS = 60;

function expect(string $what, mixed $got, mixed $wanted): void
{
    if ($got !== $wanted) {
        global $client;
        $shown = substr(var_export($got, true), 0, 500);
        $expected = substr(var_export($wanted, true), 0, 500);
        echo "$what: got $shown, expected $expected ({$client->getResultMessage()})\n";
        exit(1);
    }
}

[$host, $port] = explode(':', $argv[1]);
$client = new Memcached();
$client->setOptions([
    Memcached::OPT_BINARY_PROTOCOL => $argv[2] === 'binary',
    Memcached::OPT_COMPRESSION => false,
    Memcached::OPT_CONNECT_TIMEOUT => PATIENCE_SECONDS * 1000,
    Memcached::OPT_POLL_TIMEOUT => PATIENCE_SECONDS * 1000,
    Memcached::OPT_TCP_NODELAY => true,
]);
$client->addServer($host, (int) $port);
expect('flush', $client->flush(), true);

expect('get of nothing', $client->get('k'), false);
expect('its reason', $client->getResultCode(), Memcached::RES_NOTFOUND);
expect('replace of nothing', $client->replace('k', 'v'), false);
expect('append to nothing', $client->append('k', 'v'), false);
expect('set', $client->set('k', 'v'), true);
expect('get', $client->get('k'), 'v');
expect('add to something', $client->add('k', 'w'), false);
expect('replace', $client->replace('k', 'w'), true);
expect('append', $client->append('k', 'x'), true);
expect('prepend', $client->prepend('k', 'u'), true);
expect('get of what was put together', $client->get('k'), 'uwx');
expect('delete', $client->delete('k'), true);
expect('delete of nothing', $client->delete('k'), false);
expect('add', $client->add('k', ['an' => ['array', 1.5]]), true);
expect('get of what was added', $client->get('k'), ['an' => ['array', 1.5]]);

$client->set('k', '1');
$found = $client->get('k', null, Memcached::GET_EXTENDED);
expect('value with a token', $found['value'], '1');
expect('cas', $client->cas($found['cas'], 'k', '2'), true);
expect('cas with an old token', $client->cas($found['cas'], 'k', '3'), false);
expect('its reason', $client->getResultCode(), Memcached::RES_DATA_EXISTS);
expect('get after cas', $client->get('k'), '2');
expect('cas on nothing', $client->cas($found['cas'], 'absent', '3'), false);

expect('increment of nothing', $client->increment('n'), false);
$client->set('n', 9);
expect('increment', $client->increment('n'), 10);
expect('decrement below zero', $client->decrement('n', 20), 0);
if ($argv[2] === 'binary') {
    expect('increment with a start', $client->increment('started', 1, 7), 7);
    expect('increment of what was started', $client->increment('started', 2, 7), 9);
}
$client->set('word', 'word');
expect('increment of a word', $client->increment('word'), false);

$wanted = [];
for ($at = 0; $at < 500; $at++) {
    $wanted["key$at"] = "value$at";
}
expect('set of many', $client->setMulti($wanted), true);
expect('get of many', $client->getMulti([...array_keys($wanted), 'absent'], Memcached::GET_PRESERVE_ORDER), [...$wanted, 'absent' => null]);
expect('delete of many', array_unique(array_values($client->deleteMulti(array_keys($wanted)))), [true]);
expect('get of many that are gone', $client->getMulti(array_keys($wanted)), []);

$all = str_repeat(implode(array_map('chr', range(0, 255))), 4) . "\r\nEND\r\nVALUE k 0 1\r\n";
expect('set of all bytes', $client->set('k', $all), true);
expect('all bytes', $client->get('k'), $all);
expect('set of an empty value', $client->set('k', ''), true);
expect('get of an empty value', $client->get('k'), '');
$large = str_repeat("0123456789abcde\n", NEAR_LIMIT >> 4);
expect('set near the limit', $client->set('large', $large), true);
expect('get near the limit', $client->get('large') === $large, true);
expect('set above the limit', $client->set('large', str_repeat('x', OVER_LIMIT)), false);
expect('get of what was refused', $client->get('large'), false);

expect('set for a second', $client->set('short', 'v', 1), true);
expect('set for long', $client->set('long', 'v', 1000), true);
expect('set for long', $client->set('touched', 'v', 1000), true);
expect('touch', $client->touch('touched', 1), true);
expect('touch of nothing', $client->touch('absent', 1), false);
foreach (['short', 'touched'] as $key) {
    $start = time();
    while ($client->get($key) !== false) {
        expect("$key is gone in time", time() - $start < PATIENCE_SECONDS, true);
        usleep(50_000);
    }
}
expect('get of what lives long', $client->get('long'), 'v');
