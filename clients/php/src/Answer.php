<?php

declare(strict_types=1);

namespace Oplog;

/**
 * An HTTP answer on a socket of its own. The body is read as it comes. Deadlines are times of Clock::now().
 *
 * PHP's http:// streams hold back pieces of a stream, and turn a redirected POST into a GET.
 */
final class Answer
{
    private const MAX_HEAD_BYTES = 64 << 10;
    private const CONNECT_SECONDS = 3.0;
    private const TIMED_OUT = [60, 110, 10060]; // ETIMEDOUT of BSD, Linux and Windows

    public int $status = 0;
    /** @var array<string, string> by names in lower case */
    public array $headers = [];
    /** @var resource */
    private $socket;
    private string $reason = '';
    private string $buffer = ''; // bytes received and not decoded yet
    private bool $chunked = false;
    private bool $inChunk = false; // the end of the current chunk has not come yet
    private ?int $left = null; // bytes missing of the body or of the chunk; null: it ends with the connection
    private bool $ended = false;

    /**
     * Send a request and read the head of its answer.
     *
     * Throw RetryLaterException if the connection fails, and StoppedException $grace seconds after a stop was requested.
     *
     * @param list<string> $headers
     */
    public function __construct(
        string $method,
        Address $to,
        array $headers,
        string $body,
        float $deadline,
        private readonly Stop $stop,
        private readonly float $grace,
    ) {
        $this->connect($to, $deadline);
        $headers = ["$method {$to->target()} HTTP/1.1", "Host: {$to->authority()}", 'Connection: close',
            'Accept-Encoding: identity', 'User-Agent: oplog-php/' . Version::VERSION, ...$headers];
        $this->send(implode("\r\n", $headers) . "\r\n\r\n" . $body, $deadline);
        do {
            $this->readHead($deadline);
        } while ($this->status < 200 && $this->status !== 101);
    }

    public function close(): void
    {
        fclose($this->socket);
    }

    /** Return the next piece of the body as soon as it comes: '' at the end, null at the deadline. */
    public function read(float $deadline): ?string
    {
        while (($piece = $this->decode()) === '' && !$this->ended) {
            $bytes = $this->receive($deadline);
            if ($bytes === null) {
                return null;
            }
            if ($bytes === '' && ($this->chunked || $this->left !== null)) {
                throw new RetryLaterException('the connection was lost');
            }
            $this->ended = $bytes === '';
            $this->buffer .= $bytes;
        }
        return $piece;
    }

    /** Return the body, cut off after $most bytes. */
    public function body(int $most, float $deadline): string
    {
        for ($body = ''; strlen($body) < $most; $body .= $piece) {
            $piece = $this->read($deadline) ?? throw new RetryLaterException('the agent did not answer in time');
            if ($piece === '') {
                return $body;
            }
        }
        return substr($body, 0, $most);
    }

    /** Return an error answer as one line: the status, and the problem document's detail or the start of the body. */
    public function describe(string $body): string
    {
        $problem = json_decode($body, true);
        $detail = is_array($problem) ? $problem['detail'] ?? '' : '';
        $detail = is_string($detail) && $detail !== '' ? $detail : substr($body, 0, 200);
        return rtrim(Text::oneLine("HTTP $this->status $this->reason: $detail"), ': ');
    }

    /** Return whether the request is tried again: 408, 425, 429 and 5xx. */
    public function isTemporary(): bool
    {
        return $this->status >= 500 || in_array($this->status, [408, 425, 429], true);
    }

    public function retryAfter(): float
    {
        return Backoff::retryAfter($this->headers['retry-after'] ?? '');
    }

    private function connect(Address $to, float $deadline): void
    {
        $context = stream_context_create(['ssl' => ['peer_name' => trim($to->host, '[]')]]);
        do { // a few seconds at a time, since a signal is not noticed meanwhile
            $this->stop->check($this->grace);
            $left = max(0.001, min(self::CONNECT_SECONDS, $deadline - Clock::now()));
            $socket = @stream_socket_client("tcp://$to->host:$to->port", $code, $message, $left, STREAM_CLIENT_CONNECT, $context);
        } while ($socket === false && in_array($code, self::TIMED_OUT, true) && Clock::now() < $deadline);
        if ($socket === false) {
            throw new RetryLaterException("cannot connect to {$to->origin()}: $message");
        }
        $this->socket = $socket;
        stream_set_blocking($socket, false);
        while ($to->scheme === 'https') {
            $done = @stream_socket_enable_crypto($socket, true, STREAM_CRYPTO_METHOD_TLS_CLIENT);
            if ($done === true) {
                return;
            }
            if ($done === false) {
                throw new RetryLaterException("no TLS with {$to->origin()}: " . Text::lastError());
            }
            $this->await($deadline) || throw new RetryLaterException('the agent did not answer in time');
        }
    }

    private function send(string $bytes, float $deadline): void
    {
        while ($bytes !== '') {
            $written = @fwrite($this->socket, substr($bytes, 0, 65536));
            if ($written === false) {
                return; // an answer may have come before the end of the request; otherwise reading fails
            }
            $bytes = substr($bytes, $written);
            if ($written === 0 && !$this->await($deadline, true)) {
                throw new RetryLaterException('the agent did not take the request in time');
            }
            $this->buffer .= (string) @fread($this->socket, 65536);
            if (preg_match('~^(?:HTTP/1\.[01] 1.*?\r\n\r\n)*+HTTP/1\.[01] [^1]~s', $this->buffer) || feof($this->socket)) {
                return; // the agent answers before it has read the whole request; 1xx is not the answer yet
            }
            if (strlen($this->buffer) > self::MAX_HEAD_BYTES) {
                throw new RetryLaterException('the head of the answer has more than 64 KiB');
            }
        }
    }

    private function readHead(float $deadline): void
    {
        $from = 0;
        while (($end = strpos($this->buffer, "\r\n\r\n", $from)) === false) {
            $from = max(0, strlen($this->buffer) - 3);
            $bytes = $this->receive($deadline) ?? throw new RetryLaterException('the agent did not answer in time');
            if ($bytes === '') {
                throw new RetryLaterException('the agent ended the connection without an answer');
            }
            if (Clock::now() >= $deadline) {
                throw new RetryLaterException('the agent did not answer in time');
            }
            $this->buffer .= $bytes;
            if (strlen($this->buffer) > self::MAX_HEAD_BYTES) {
                throw new RetryLaterException('the head of the answer has more than 64 KiB');
            }
        }
        $lines = explode("\r\n", substr($this->buffer, 0, $end));
        $this->buffer = substr($this->buffer, $end + 4);
        if (!preg_match('~^HTTP/1\.[01] ([1-9][0-9]{2})(?: (.*))?$~D', array_shift($lines), $match)) {
            throw new RetryLaterException('the answer is not HTTP');
        }
        [$this->status, $this->reason] = [(int) $match[1], $match[2] ?? ''];
        $this->headers = [];
        foreach ($lines as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            [$name, $value] = [strtolower($name), trim($value, " \t")];
            if ($name === 'oplog-shard' && isset($this->headers[$name])) {
                $value = "{$this->headers[$name]}, $value"; // two confirm nothing
            }
            $this->headers[$name] = $value;
        }
        $this->chunked = isset($this->headers['transfer-encoding']);
        $length = $this->headers['content-length'] ?? null;
        if ($this->chunked && strtolower($this->headers['transfer-encoding']) !== 'chunked'
            || $length !== null && !preg_match('/^[0-9]{1,15}$/D', $length)) {
            throw new RetryLaterException('the length of the answer cannot be understood');
        }
        $this->left = $this->chunked ? 0 : ($length === null ? null : (int) $length);
        if (in_array($this->status, [204, 304], true)) {
            [$this->chunked, $this->left] = [false, 0];
        }
    }

    /** Return the part of the body that has come, '' if there is none. */
    private function decode(): string
    {
        if ($this->chunked && $this->left === 0 && !$this->ended && !$this->beginChunk()) {
            return '';
        }
        if ($this->left === 0) {
            $this->ended = true;
            return '';
        }
        $piece = $this->left === null ? $this->buffer : substr($this->buffer, 0, $this->left);
        $this->buffer = substr($this->buffer, strlen($piece));
        if ($this->left !== null) {
            $this->left -= strlen($piece);
        }
        return $piece;
    }

    /** Read the size of the next chunk. Return false if it has not come yet. */
    private function beginChunk(): bool
    {
        $start = $this->inChunk ? 2 : 0; // the end of the previous chunk
        $end = strlen($this->buffer) < $start ? false : strpos($this->buffer, "\r\n", $start);
        if ($end === false) {
            if (strlen($this->buffer) > 4096) {
                throw new RetryLaterException('the chunks of the answer cannot be read');
            }
            return false;
        }
        [$size] = explode(';', substr($this->buffer, $start, $end - $start)); // extensions follow
        $size = rtrim($size, " \t");
        if ($this->inChunk && !str_starts_with($this->buffer, "\r\n") || !preg_match('/^[0-9a-f]{1,12}$/Di', $size)) {
            throw new RetryLaterException('the chunks of the answer cannot be read');
        }
        $this->buffer = substr($this->buffer, $end + 2);
        $this->left = (int) hexdec($size);
        $this->inChunk = true;
        return true;
    }

    /** Return bytes as they come: '' when the connection has ended, null at the deadline. */
    private function receive(float $deadline): ?string
    {
        do {
            $this->stop->check($this->grace); // also if there is always something to read
            $bytes = @fread($this->socket, 65536);
            if (is_string($bytes) && $bytes !== '') {
                return $bytes;
            }
            if (feof($this->socket)) {
                return '';
            }
        } while ($this->await($deadline));
        return null;
    }

    /** Wait until there is something to read, or room to write. Return false at the deadline. */
    private function await(float $deadline, bool $write = false): bool
    {
        while (true) {
            $this->stop->check($this->grace);
            $left = min(0.5, $deadline - Clock::now()); // short: a signal may come just before the call
            if ($left <= 0) {
                return false;
            }
            $readable = [$this->socket];
            $writable = $write ? [$this->socket] : null;
            $others = null;
            if (@stream_select($readable, $writable, $others, 0, (int) ($left * 1e6) + 1)) { // false: a signal
                return true;
            }
        }
    }
}
