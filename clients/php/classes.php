<?php
// Prints "CLASS SETS" for each slab class that PHP's memcached extension reads from the server at HOST:PORT, in the
// protocol text or binary.

declare(strict_types=1);

[$host, $port] = explode(':', $argv[1]);
$client = new Memcached();
$client->setOption(Memcached::OPT_BINARY_PROTOCOL, $argv[2] === 'binary');
$client->addServer($host, (int) $port);
foreach ($client->getStats('slabs')[$argv[1]] as $name => $value) {
    if (preg_match('/^(\d+):cmd_set$/', (string) $name, $found)) {
        echo "$found[1] $value\n";
    }
}
