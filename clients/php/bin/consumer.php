#!/usr/bin/env php
<?php

// Follows an oplog agent and prints each event.
//
//   php bin/consumer.php --url=http://localhost:8042 --types=video,user --start=0 --state=consumer.state
//
// With --state it continues at the saved position. A position is saved after its event was printed, never before: a crash
// repeats events and loses none. With --count=N it ends after N operations. OPLOG_PASSWORD holds the agent's password.
// With --token-file=PATH the token in this file is sent instead. It is read again before each connection.
//
// Exit status: 0 after --count or a signal, with the position saved. 1 if the agent refuses for good, or the state file
// cannot be used. 2 for a mistake in the command line.
declare(strict_types=1);

use Oplog\Cli\Flags;
use Oplog\Cli\Program;
use Oplog\Consumer;
use Oplog\Event;
use Oplog\RefusedException;

require __DIR__ . '/../src/autoload.php';

Program::start();
$stop = Program::stopOnSignals();
$flags = Flags::read(array_slice($argv, 1), [
    'url' => 'http://localhost:8042', 'types' => '', 'parents' => '', 'start' => '', 'name' => '', 'shard' => '', 'state' => '',
    'count' => '0', 'json' => false, 'heartbeat-timeout' => '40', 'timeout' => '30', 'backoff' => '1,30', 'token-file' => '',
]);
if (!preg_match('/^[0-9]{1,15}$/D', $flags['count'])) {
    Program::usage('--count: give a number of operations; 0: never end');
}
$arguments = [
    'types' => Flags::names('types', $flags['types']),
    'parents' => Flags::names('parents', $flags['parents']),
    'heartbeatTimeout' => Flags::seconds('heartbeat-timeout', $flags['heartbeat-timeout']),
    'timeout' => Flags::seconds('timeout', $flags['timeout']),
    'backoff' => Flags::backoff($flags['backoff']),
];
if (@fstat(STDOUT) === false) { // the next opened file would take its place
    Program::fail(1, 'standard output is closed');
}
$token = Flags::tokenFile($flags['token-file']);
try {
    $consumer = new Consumer(
        $flags['url'],
        ...$arguments,
        start: $flags['start'],
        stateFile: $flags['state'],
        password: $token === null ? (string) getenv('OPLOG_PASSWORD') : '',
        stop: $stop,
        name: $flags['name'],
        token: $token,
        shard: $flags['shard'],
    );
} catch (InvalidArgumentException $error) {
    Program::usage($error->getMessage());
}
$left = (int) $flags['count'];
$consumer->follow(function (Event $event) use (&$left, $flags): bool {
    $line = match (true) {
        $flags['json'] => jsonLine($event),
        !$event->isOperation() => $event->name,
        default => "$event->name {$event->key()} [" . implode(' ', $event->parents) . ']',
    };
    for ($line .= "\n"; $line !== ''; $line = substr($line, $written)) {
        $written = @fwrite(STDOUT, $line) ?: throw new RefusedException('standard output cannot be written');
    }
    return !$event->isOperation() || --$left !== 0;
});

function jsonLine(Event $event): string
{
    $shown = ['id' => $event->position, 'event' => $event->name];
    if ($event->isOperation()) {
        $shown += ['type' => $event->type, 'object' => $event->id, 'parents' => $event->parents, 'timestamp' => $event->timestamp];
    }
    return json_encode($shown, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE);
}
