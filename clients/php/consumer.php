<?php
// Follows an oplog agent and prints each event. Needs nothing but php-cli.
//
//   php consumer.php --url=http://localhost:8042 --types=video,user --start=0 --state=consumer.state
//
// With --state it goes on where it was. The position is saved after an event was dealt with, never before, so a crash
// repeats events and loses none. With --count=N it ends after N operations. OPLOG_PASSWORD holds the agent's password.
declare(strict_types=1);

const HEARTBEAT_TIMEOUT = 40; // seconds; agents send something at least every 25
const FIRST_PAUSE = 1.0;
const LAST_PAUSE = 30.0;
const SAVE_INTERVAL = 1.0;

/** The agent refuses, and trying again does not change that. */
final class Refused extends RuntimeException
{
}

/**
 * A GET on a socket of its own: PHP's http:// streams hold back what comes in chunks until a buffer is full.
 *
 * @return array{resource|null, int, bool} the socket behind the headers, the status (0: no answer), whether it is chunked
 */
function open_url(string $url, array $headers): array
{
    $where = parse_url($url);
    $tls = $where['scheme'] === 'https';
    $port = $where['port'] ?? ($tls ? 443 : 80);
    $socket = @stream_socket_client(($tls ? 'tls' : 'tcp') . "://{$where['host']}:$port", $code, $message, 10);
    if ($socket === false) {
        return [null, 0, false];
    }
    stream_set_timeout($socket, HEARTBEAT_TIMEOUT);
    $lines = ["GET {$where['path']}?{$where['query']} HTTP/1.1", "Host: {$where['host']}:$port", ...$headers];
    fwrite($socket, implode("\r\n", $lines) . "\r\n\r\n");
    $status = (int) (explode(' ', (string) fgets($socket))[1] ?? 0);
    $chunked = false;
    while (($line = rtrim((string) fgets($socket))) !== '') {
        $chunked = $chunked || preg_match('/^transfer-encoding: *chunked$/i', $line);
    }
    return [$socket, $status, $chunked];
}

/** @return iterable<string> whole lines, as soon as they come, without their ends */
function lines($socket, bool $chunked): iterable
{
    $partial = '';
    $left = 0; // bytes of the current chunk
    while (!feof($socket)) {
        if ($chunked && $left === 0) {
            $left = (int) hexdec(trim((string) fgets($socket)));
            if ($left === 0) {
                return;
            }
        }
        $bytes = fread($socket, $chunked ? min($left, 65536) : 65536);
        if ($bytes === false || $bytes === '') {
            return;
        }
        if ($chunked && ($left -= strlen($bytes)) === 0) {
            fgets($socket); // the end of its line
        }
        $lines = explode("\n", $partial . $bytes);
        $partial = array_pop($lines);
        yield from $lines;
    }
}

final class Consumer
{
    private string $saved = '';
    private float $savedAt = 0.0;

    /** @param callable(string $event, ?array $operation): bool $handle returns whether to go on */
    public function __construct(
        private string $url,
        private string $password,
        private string $stateFile,
        private string $position,
        private $handle,
    ) {
        if ($stateFile !== '' && is_file($stateFile)) {
            $stored = rtrim((string) file_get_contents($stateFile), "\n");
            if (!preg_match('/^(?:[0-9]{0,13}|[0-9a-f]{24})$/D', $stored)) {
                throw new Refused("$stateFile holds no position");
            }
            $this->saved = $stored;
            $this->position = $stored !== '' ? $stored : $position;
        }
    }

    /** Runs until the handler has enough. Throws Refused when the agent refuses for good. */
    public function run(): void
    {
        $pause = FIRST_PAUSE;
        while (true) {
            [$received, $reason] = $this->follow();
            if ($reason === '') {
                return;
            }
            if ($received) {
                $pause = FIRST_PAUSE;
            }
            $wait = min(LAST_PAUSE, $pause * (1 + mt_rand() / mt_getrandmax()));
            fprintf(STDERR, "%s; trying again in %.1f s\n", $reason, $wait);
            usleep((int) ($wait * 1e6));
            $pause = min(LAST_PAUSE / 2, $pause * 2);
        }
    }

    /** One connection to its end: whether any event came, and why it ended, '' if by the handler. @return array{bool, string} */
    private function follow(): array
    {
        $headers = ['Accept: text/event-stream', 'Accept-Encoding: identity', 'Connection: close'];
        if ($this->position !== '') {
            $headers[] = "Last-Event-ID: $this->position";
        }
        if ($this->password !== '') {
            $headers[] = 'Authorization: Basic ' . base64_encode(":$this->password");
        }
        [$socket, $status, $chunked] = open_url($this->url, $headers);
        if ($status === 0) {
            return [false, 'the agent does not answer'];
        }
        if ($status !== 200) {
            $detail = "HTTP $status " . stream_get_contents($socket, 1000);
            if ($status < 500 && !in_array($status, [408, 425, 429], true)) {
                throw new Refused($detail);
            }
            return [false, $detail];
        }
        $received = false;
        $fields = [];
        foreach (lines($socket, $chunked) as $line) {
            if ($line === '' && isset($fields['id'])) {
                $more = !isset($fields['event']) // only the position moves
                    || ($this->handle)($fields['event'], json_decode($fields['data'] ?? '', true));
                $received = true;
                $this->position = $fields['id'];
                $fields = [];
                $this->save(!$more);
                if (!$more) {
                    return [$received, ''];
                }
            } elseif ($line !== '' && $line[0] !== ':') {
                [$name, $value] = explode(':', $line, 2) + [1 => ''];
                $fields[$name] = str_starts_with($value, ' ') ? substr($value, 1) : $value;
            }
        }
        $silent = stream_get_meta_data($socket)['timed_out'];
        fclose($socket);
        return [$received, $silent ? 'the agent was silent for too long' : 'the agent ended the stream'];
    }

    /** Replaces the state file in one step, at most once in SAVE_INTERVAL unless it must be now. */
    private function save(bool $now): void
    {
        $early = !$now && microtime(true) - $this->savedAt < SAVE_INTERVAL;
        if ($this->stateFile === '' || $this->position === $this->saved || $early) {
            return;
        }
        $file = fopen("$this->stateFile.new", 'w');
        if ($file === false || fwrite($file, $this->position) === false || !fsync($file) || !fclose($file)
            || !rename("$this->stateFile.new", $this->stateFile)) {
            fwrite(STDERR, "cannot write $this->stateFile\n");
            return;
        }
        $this->saved = $this->position;
        $this->savedAt = microtime(true);
    }
}

$options = getopt('', ['url:', 'types:', 'parents:', 'start:', 'state:', 'count:']);
$left = (int) ($options['count'] ?? 0); // operations; 0: it does not end by itself
$query = ['checkpoint' => 1] + array_intersect_key($options, ['types' => 0, 'parents' => 0]);
$consumer = new Consumer(
    rtrim($options['url'] ?? 'http://localhost:8042', '/') . '/ops?' . http_build_query($query),
    (string) getenv('OPLOG_PASSWORD'),
    $options['state'] ?? '',
    $options['start'] ?? '',
    function (string $event, ?array $operation) use (&$left): bool {
        if ($operation === null) {
            echo "$event\n";
            return true;
        }
        echo "$event {$operation['type']}/{$operation['id']} [" . implode(' ', $operation['parents']) . "]\n";
        return --$left !== 0;
    },
);
try {
    $consumer->run();
} catch (Refused $error) {
    fwrite(STDERR, "the agent refuses: {$error->getMessage()}\n");
    exit(1);
}
