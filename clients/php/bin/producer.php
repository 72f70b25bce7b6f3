#!/usr/bin/env php
<?php

// Reads operations from standard input, one JSON object on each line, and sends them to an oplog agent.
//
//   php bin/producer.php --url=udp://localhost:8042 < operations    nothing confirms that they arrive
//   php bin/producer.php --url=http://localhost:8042 < operations   at least once, in batches
//
// Lines that come slowly are sent after a second at most. OPLOG_PASSWORD holds the agent's ingest password.
// With --token-file=PATH the token in this file is sent instead. It is read again when the agent refuses it.
//
// Exit status: 0 when all operations are delivered (UDP: given to the network), also after a signal, which ends the reading.
// 1 when an operation is rejected or not delivered. 2 for a mistake in the command line.
declare(strict_types=1);

use Oplog\Cli\Flags;
use Oplog\Cli\Program;
use Oplog\Clock;
use Oplog\InvalidOperationException;
use Oplog\Producer;
use Oplog\RefusedException;
use Oplog\Stop;
use Oplog\Text;

require __DIR__ . '/../src/autoload.php';

const LONGEST_LINE_BYTES = 128 << 10; // more than an operation may have
const LINGER_SECONDS = 1.0; // longest wait of an operation for others in the same request

Program::start();
$stop = Program::stopOnSignals();
$flags = Flags::read(array_slice($argv, 1), [
    'url' => 'udp://localhost:8042', 'timeout' => '30', 'backoff' => '1,30', 'token-file' => '',
]);
$timeout = Flags::seconds('timeout', $flags['timeout']);
$backoff = Flags::backoff($flags['backoff']);
$rejected = 0;
$reject = function (string $label, string $reason, int $count) use (&$rejected): void {
    $rejected++;
    Text::tell(Producer::describe($label, $reason, $count));
};
try {
    $token = Flags::tokenFile($flags['token-file']);
    $password = $token === null ? (string) getenv('OPLOG_PASSWORD') : '';
    $producer = new Producer($flags['url'], $password, $timeout, $backoff, rejected: $reject, stop: $stop, token: $token);
} catch (InvalidArgumentException $error) {
    Program::usage("--url: {$error->getMessage()}");
}
$flushAt = INF; // when the oldest waiting operation has waited long enough
foreach (lines($stop) as $number => $line) {
    if ($line !== '') {
        try {
            $producer->sendJson($line, "line $number");
            $flushAt = min($flushAt, Clock::now() + LINGER_SECONDS);
        } catch (InvalidOperationException $error) {
            $reject("line $number", $error->getMessage(), 1);
        }
    }
    if (Clock::now() >= $flushAt) {
        $producer->flush();
        $flushAt = INF;
    }
}
$producer->close();
exit($rejected === 0 ? 0 : 1);

/**
 * Yield the lines of standard input by their numbers, and '' at intervals. End with the input or at a stop. A line that is
 * not complete at a stop is left out.
 *
 * @return iterable<int, string>
 */
function lines(Stop $stop): iterable
{
    $rest = '';
    for ($number = 1; !feof(STDIN) && !$stop->isRequested();) {
        yield $number => '';
        [$readable, $writable, $others] = [[STDIN], null, null];
        if (!@stream_select($readable, $writable, $others, 0, 500_000)) { // false: a signal
            continue;
        }
        $bytes = @fread(STDIN, 65536);
        if ($bytes === false) {
            throw new RefusedException('standard input cannot be read: ' . Text::lastError());
        }
        if (strlen($rest) > LONGEST_LINE_BYTES) { // it is refused in any case: keep only a part
            $rest = substr($rest, 0, LONGEST_LINE_BYTES);
        }
        $lines = explode("\n", $rest . $bytes);
        $rest = array_pop($lines);
        foreach ($lines as $line) {
            yield $number++ => trim($line, " \t\r");
        }
    }
    if (!$stop->isRequested()) {
        yield $number => trim($rest, " \t\r");
    }
}
