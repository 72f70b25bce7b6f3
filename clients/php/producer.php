<?php
// Sends the operations it reads from standard input, one JSON object a line, to an oplog agent. Needs nothing but php-cli
// (8.1 or newer) and the files beside it.
//
//   php producer.php --url=udp://localhost:8042 < operations    fire and forget
//   php producer.php --url=http://localhost:8042 < operations   at least once, in batches
//
// Operations that are read slowly are sent after a second at most. OPLOG_PASSWORD holds the agent's ingest password.
//
// Exit status: 0 when everything was delivered (UDP: given to the network), also after a signal, which ends the reading;
// 1 when an operation was rejected or not delivered; 2 for a mistake in the command line.
declare(strict_types=1);

require __DIR__ . '/address.php';
require __DIR__ . '/cli.php';
require __DIR__ . '/http.php';
require __DIR__ . '/wire.php';

const BATCH_LINES = 1000;
const BATCH_BYTES = 1 << 20;
const MAX_OPERATION_BYTES = 64 << 10;
const MAX_DATAGRAM_BYTES = 65_507; // over IPv4
const MAX_ANSWER_BYTES = 256 << 10;
const LINGER_SECONDS = 1.0; // an operation waits so long for others to share its request
const CLOSE_SECONDS = 30.0; // after a signal, to send the lines already read

/** Operations that were not sent, or that the agent refused. */
final class Rejected
{
    public static int $count = 0;

    public static function tell(int $line, string $reason): void
    {
        self::$count++;
        tell("line $line is rejected: $reason");
    }
}

final class UdpProducer
{
    /** @var resource */
    private $socket;
    private string $to;

    public function __construct(Address $to)
    {
        $ipv6 = str_starts_with($to->host, '[');
        $ip = $ipv6 ? $to->host : @gethostbynamel($to->host)[0] ?? throw new Refused("the host $to->host is not known");
        $this->to = "$ip:$to->port";
        // Not connected: a connected socket spends a send on reporting that the one before found no agent.
        $this->socket = @stream_socket_server($ipv6 ? 'udp://[::]:0' : 'udp://0.0.0.0:0', $code, $message, STREAM_SERVER_BIND)
            ?: throw new Refused("no socket: $message");
    }

    public function send(int $line, string $operation): void
    {
        if (strlen($operation) > MAX_DATAGRAM_BYTES) {
            Rejected::tell($line, 'it has ' . strlen($operation) . ' bytes, more than a datagram holds: send it over HTTP');
        } elseif (@stream_socket_sendto($this->socket, $operation, 0, $this->to) !== strlen($operation)) {
            Rejected::tell($line, last_error());
        }
    }

    public function flush(): void
    {
    }
}

final class HttpProducer
{
    /** @var list<array{int, string}> the line number and the operation */
    private array $waiting = [];
    private int $bytes = 0;
    private int $size = BATCH_LINES; // operations in a request: fewer after "413 too large"

    public function __construct(private Address $url, private float $timeout, private Backoff $backoff)
    {
    }

    public function send(int $line, string $operation): void
    {
        $this->waiting[] = [$line, $operation];
        $this->bytes += strlen($operation) + 1;
        if (count($this->waiting) >= BATCH_LINES || $this->bytes >= BATCH_BYTES) {
            $this->flush();
        }
    }

    /** Returns when all operations are delivered or rejected. Throws Refused when the agent refuses for good. */
    public function flush(): void
    {
        try {
            while ($this->waiting !== []) {
                $batch = array_slice($this->waiting, 0, $this->size);
                try {
                    $this->post($batch);
                    $this->backoff->reset();
                } catch (Later $reason) { // the same batch again
                    $this->backoff->pause($reason, CLOSE_SECONDS);
                }
            }
        } catch (Refused | Stopped $error) {
            throw new Refused($error->getMessage() . '; ' . count($this->waiting) . ' operations are not delivered');
        }
        $this->bytes = 0;
    }

    /** Sends a request, and removes the operations that the answer settles from the queue. Throws Later, Refused, Stopped. */
    private function post(array $batch): void
    {
        $deadline = now() + $this->timeout;
        $body = implode("\n", array_column($batch, 1));
        $headers = ['Content-Type: application/x-ndjson', 'Content-Length: ' . strlen($body)];
        $headers = [...$headers, ...$this->url->authorization($this->url)];
        $answer = new Answer('POST', $this->url, $headers, $body, $deadline, CLOSE_SECONDS);
        try {
            $said = $answer->body(MAX_ANSWER_BYTES, $deadline);
        } finally {
            $answer->close();
        }
        $count = count($batch);
        $status = $answer->status;
        $document = json_decode($said, true);
        if ($status === 200 && is_array($document) && ($document['ingested'] ?? null) === $count) {
            $this->settle($count);
            $this->size = min(BATCH_LINES, 2 * $this->size);
        } elseif (intdiv($status, 100) === 2) {
            throw new Refused("the address is no agent: HTTP $status does not say that the $count operations were stored");
        } elseif (intdiv($status, 100) === 3) {
            $to = $this->url->follow($answer->headers['location'] ?? '')?->shown() ?? 'nowhere';
            throw new Refused("HTTP $status redirects to $to: give that as --url if it is the agent");
        } elseif ($answer->passes()) {
            throw new Later($answer->said($said), $answer->retryAfter());
        } elseif ($status === 413 && $count === 1) {
            Rejected::tell($batch[0][0], $answer->said($said));
            $this->settle(1);
        } elseif ($status === 413) {
            $this->size = intdiv($count, 2);
        } elseif ($status === 400 && ($bad = bad_lines($document, $count)) !== []) {
            $first = min(array_keys($bad));
            Rejected::tell($batch[$first][0], "$bad[$first] (the agent refuses " . count($bad) . ' operations of this request)');
            $this->settle($count, array_diff_key($batch, $bad));
        } else {
            throw new Refused('the agent refuses: ' . $answer->said($said));
        }
    }

    /** The first operations leave the queue, those in $again come back. */
    private function settle(int $count, array $again = []): void
    {
        array_splice($this->waiting, 0, $count, $again);
    }
}

/** The lines, from 0, that a problem document names, with the reasons. Empty if it names none or a wrong one. */
function bad_lines(mixed $problem, int $lines): array
{
    $bad = [];
    foreach (is_array($problem) && is_array($problem['errors'] ?? null) ? $problem['errors'] : [] as $error) {
        $line = is_array($error) ? $error['line'] ?? null : null;
        if (!is_int($line) || $line < 1 || $line > $lines) {
            return [];
        }
        $words = array_filter([$error['field'] ?? '', $error['reason'] ?? ''], 'is_string');
        $bad[$line - 1] = implode(': ', $words);
    }
    return $bad;
}

/** Throws Invalid for an operation that the agent would refuse. */
function check(string $operation): void
{
    if (strlen($operation) > MAX_OPERATION_BYTES) {
        throw new Invalid('it has more than ' . MAX_OPERATION_BYTES . ' bytes');
    }
    $fields = json_object($operation);
    if (!in_array(strtolower(text($fields, 'event')), ['insert', 'update', 'delete'], true)) {
        throw new Invalid('event must be insert, update or delete');
    }
    if (!preg_match('~^[^/,]{1,255}$~Ds', text($fields, 'type'))) {
        throw new Invalid("type must have 1 to 255 bytes, and neither '/' nor ','");
    }
    if (!preg_match('/^.{1,1024}$/Ds', text($fields, 'id'))) {
        throw new Invalid('id must have 1 to 1024 bytes');
    }
    if (in_array('', parents($fields), true)) {
        throw new Invalid('parents must not hold an empty string');
    }
    if (isset($fields['timestamp'])) {
        utc(text($fields, 'timestamp'));
    }
}

/**
 * The lines of standard input by their numbers, '' now and then when none comes. It ends with the input, or with a signal;
 * a line that has no end by then is left out.
 *
 * @return iterable<int, string>
 */
function lines(): iterable
{
    $rest = '';
    for ($number = 1; !feof(STDIN) && Signals::$stoppedAt === INF;) {
        yield $number => '';
        [$readable, $writable, $others] = [[STDIN], null, null];
        if (!@stream_select($readable, $writable, $others, 0, 500_000)) { // false: a signal
            continue;
        }
        $bytes = @fread(STDIN, 65536);
        if ($bytes === false) {
            throw new Refused('standard input cannot be read: ' . last_error());
        }
        if (strlen($rest) > 2 * MAX_OPERATION_BYTES) { // too long in any case: keep its length only
            $rest = str_repeat('x', MAX_OPERATION_BYTES + 1);
        }
        $lines = explode("\n", $rest . $bytes);
        $rest = array_pop($lines);
        foreach ($lines as $line) {
            yield $number++ => trim($line, " \t\r");
        }
    }
    if (Signals::$stoppedAt === INF) {
        yield $number => trim($rest, " \t\r");
    }
}

Signals::watch();
$flags = flags(array_slice($argv, 1), ['url' => 'udp://localhost:8042', 'timeout' => '30', 'backoff' => '1,30']);
$url = Address::parse($flags['url'], ['udp', 'http', 'https'], (string) getenv('OPLOG_PASSWORD'))
    ?? usage('--url: it must be udp://host:port, http://host:port or https://host:port');
$timeout = seconds('timeout', $flags['timeout']);
$backoff = Backoff::of($flags['backoff']);
$producer = $url->scheme === 'udp' ? new UdpProducer($url) : new HttpProducer($url->ops(''), $timeout, $backoff);
$flushAt = INF; // when the oldest operation that waits has done so for long enough
foreach (lines() as $number => $line) {
    if ($line !== '') {
        try {
            check($line);
            $producer->send($number, $line);
            $flushAt = min($flushAt, now() + LINGER_SECONDS);
        } catch (Invalid $error) {
            Rejected::tell($number, $error->getMessage());
        }
    }
    if (now() >= $flushAt) {
        $producer->flush();
        $flushAt = INF;
    }
}
$producer->flush();
exit(Rejected::$count === 0 ? 0 : 1);
