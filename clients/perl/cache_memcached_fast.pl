# Runs Perl's Cache::Memcached::Fast through what it offers, against the server at HOST:PORT.

use strict;
use warnings;

use Cache::Memcached::Fast;
use Time::HiRes qw(sleep time);

use constant NEAR_LIMIT       => (1 << 20) - 512;
use constant OVER_LIMIT       => (1 << 20) + 1;
use constant PATIENCE_SECONDS => 60;

my $client = Cache::Memcached::Fast->new({
    servers         => [$ARGV[0]],
    connect_timeout => PATIENCE_SECONDS,
    io_timeout      => PATIENCE_SECONDS,
    max_size        => 4 << 20,
    # Without it a refusal ends the connection.
    close_on_error => 0,
});

# undef is a failure, the empty string a "no", 1 a "yes".
sub expect {
    my ($what, $got, $wanted) = @_;
    return if defined $got ? defined $wanted && $got eq $wanted : !defined $wanted;
    my ($shown, $expected) = map { defined ? "'" . substr($_, 0, 500) . "'" : 'undef' } $got, $wanted;
    die "$what: got $shown, expected $expected\n";
}

expect('flush', $client->flush_all->{$ARGV[0]}, 1);

expect('get of nothing',                $client->get('k'),          undef);
expect('replace of nothing',            $client->replace('k', 'v'), '');
expect('append to nothing',             $client->append('k', 'v'),  '');
expect('set',                           $client->set('k', 'v'),     1);
expect('get',                           $client->get('k'),          'v');
expect('add to something',              $client->add('k', 'w'),     '');
expect('replace',                       $client->replace('k', 'w'), 1);
expect('append',                        $client->append('k', 'x'),  1);
expect('prepend',                       $client->prepend('k', 'u'), 1);
expect('get of what was put together',  $client->get('k'),          'uwx');
expect('delete',                        $client->delete('k'),       1);
expect('delete of nothing',             $client->delete('k'),       '');
expect('add',                           $client->add('k', 'v'),     1);
expect('get of what was added',         $client->get('k'),          'v');

$client->set('k', '1');
my $found = $client->gets('k');
expect('gets',                   $found->[1],                             '1');
expect('cas',                    $client->cas('k', $found->[0], '2'),      1);
expect('cas with an old token',  $client->cas('k', $found->[0], '3'),      '');
expect('get after cas',          $client->get('k'),                       '2');
expect('cas on nothing',         $client->cas('absent', $found->[0], '3'), '');

expect('incr of nothing', $client->incr('n', 1), '');
$client->set('n', '9');
expect('incr',            $client->incr('n', 1),  10);
expect('decr below zero', $client->decr('n', 20) + 0, 0);
$client->set('n', 'word');
expect('incr of a word', $client->incr('n', 1), undef);

my %wanted = map { ("key$_" => "value$_") } 0 .. 499;
my $stored = $client->set_multi(map { [$_, $wanted{$_}] } keys %wanted);
expect('set of many', scalar(grep { $_ } values %$stored), 500);
my $read = $client->get_multi('absent', keys %wanted);
expect('get of many', scalar(keys %$read), 500);
expect("get of $_", $read->{$_}, $wanted{$_}) for keys %wanted;

my $all = join('', map { chr } 0 .. 255) x 4 . "\r\nEND\r\nVALUE k 0 1\r\n";
expect('set of all bytes',       $client->set('k', $all), 1);
expect('all bytes',              $client->get('k'),       $all);
expect('set of an empty value',  $client->set('k', ''),   1);
expect('get of an empty value',  $client->get('k'),       '');
my $large = "0123456789abcde\n" x (NEAR_LIMIT >> 4);
expect('set near the limit',     $client->set('large', $large), 1);
expect('get near the limit',     $client->get('large') eq $large, 1);
expect('set above the limit',    $client->set('large', 'x' x OVER_LIMIT), undef);
expect('get of what was refused', $client->get('large'), undef);

expect('set for a second', $client->set('short', 'v', 1), 1);
expect('set for long', $client->set($_, 'v', 1000), 1) for qw(long touched got);
expect('touch',            $client->touch('touched', 1), 1);
expect('touch of nothing', $client->touch('absent', 1),  '');
expect('get and touch',    $client->gat(1, 'got'),       'v');
for my $key (qw(short touched got)) {
    my $start = time;
    while (defined $client->get($key)) {
        expect("$key is gone in time", time - $start < PATIENCE_SECONDS, 1);
        sleep 0.05;
    }
}
expect('get of what lives long', $client->get('long'), 'v');
