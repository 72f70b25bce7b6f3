<?php
// Sends the operations it reads from standard input, one JSON object a line, to an oplog agent. Needs nothing but php-cli.
//
//   php producer.php --url=udp://localhost:8042 < operations    fire and forget
//   php producer.php --url=http://localhost:8042 < operations   at least once, in batches
//
// OPLOG_PASSWORD holds the agent's ingest password.
declare(strict_types=1);

const BATCH_LINES = 1000;
const BATCH_BYTES = 1 << 20;
const FIRST_PAUSE = 1.0;
const LAST_PAUSE = 30.0;

final class UdpProducer
{
    private Socket $socket;
    private string $address;

    public function __construct(string $host, private int $port)
    {
        $this->address = gethostbyname($host);
        // Not connected: a connected socket spends a send on reporting that the one before found no agent.
        $this->socket = socket_create(AF_INET, SOCK_DGRAM, SOL_UDP);
    }

    public function send(string $line): void
    {
        @socket_sendto($this->socket, $line, strlen($line), 0, $this->address, $this->port);
    }

    public function flush(): void
    {
    }
}

final class HttpProducer
{
    /** @var string[] */
    private array $lines = [];
    private int $bytes = 0;

    public function __construct(private string $url, private string $password)
    {
    }

    public function send(string $line): void
    {
        $this->lines[] = $line;
        $this->bytes += strlen($line) + 1;
        if (count($this->lines) >= BATCH_LINES || $this->bytes >= BATCH_BYTES) {
            $this->flush();
        }
    }

    /** Returns when the agent has stored what was sent: the same batch again until then. */
    public function flush(): void
    {
        for ($pause = FIRST_PAUSE; $this->lines !== []; $pause = min(LAST_PAUSE, 2 * $pause)) {
            [$status, $retryAfter, $detail] = $this->post(implode("\n", $this->lines));
            if ($status === 200) {
                $this->lines = [];
                $this->bytes = 0;
                return;
            }
            if ($status >= 400 && $status < 500 && !in_array($status, [408, 425, 429], true)) {
                throw new RuntimeException("the agent refuses: HTTP $status $detail");
            }
            $wait = max($pause, $retryAfter) * (1 + mt_rand() / mt_getrandmax());
            fprintf(STDERR, "%s; trying again in %.1f s\n", $detail, $wait);
            usleep((int) ($wait * 1e6));
        }
    }

    /** @return array{int, int, string} status (0: no answer), Retry-After in seconds, what was said */
    private function post(string $body): array
    {
        $headers = ['Content-Type: application/x-ndjson'];
        if ($this->password !== '') {
            $headers[] = 'Authorization: Basic ' . base64_encode(":$this->password");
        }
        $http = ['method' => 'POST', 'header' => $headers, 'content' => $body, 'timeout' => 30, 'ignore_errors' => true];
        $answer = @file_get_contents($this->url, false, stream_context_create(['http' => $http]));
        if ($answer === false) {
            return [0, 0, error_get_last()['message'] ?? 'the agent does not answer'];
        }
        $retryAfter = 0;
        foreach ($http_response_header as $header) {
            if (preg_match('/^retry-after: *([0-9]+)$/i', $header, $match)) {
                $retryAfter = (int) $match[1];
            }
        }
        return [(int) explode(' ', $http_response_header[0])[1], $retryAfter, $answer];
    }
}

$url = getopt('', ['url:'])['url'] ?? 'udp://localhost:8042';
$where = parse_url($url);
$producer = match ($where['scheme'] ?? '') {
    'udp' => new UdpProducer($where['host'], $where['port'] ?? 8042),
    'http', 'https' => new HttpProducer(rtrim($url, '/') . '/ops', (string) getenv('OPLOG_PASSWORD')),
    default => exit("$url is neither udp://host:port nor http://host:port\n"),
};
while (($line = fgets(STDIN)) !== false) {
    $operation = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
    $producer->send(json_encode($operation, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE));
}
$producer->flush();
