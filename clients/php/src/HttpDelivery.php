<?php

declare(strict_types=1);

namespace Oplog;

/** Sends operations in batches, and repeats a batch until the agent has it. */
final class HttpDelivery implements Delivery
{
    private const BATCH_OPERATIONS = 1000;
    private const BATCH_BYTES = 1 << 20;
    private const MAX_ANSWER_BYTES = 256 << 10;

    /** @var list<array{string, string}> the labels and the operations */
    private array $waiting = [];
    private int $bytes = 0;
    private int $size = self::BATCH_OPERATIONS; // operations in a request: fewer after "413 too large"

    /**
     * @param Address $ops address of the operations
     * @param \Closure(string): void $log
     * @param \Closure(string, string, int): void $rejected receives label and reason of the first operation that an answer
     *     rejects, and the number of them
     */
    public function __construct(
        private readonly Address $ops,
        private readonly float $timeout,
        private readonly Backoff $backoff,
        private readonly \Closure $log,
        private readonly \Closure $rejected,
    ) {
    }

    public function send(string $label, string $json): bool
    {
        $this->waiting[] = [$label, $json];
        $this->bytes += strlen($json) + 1;
        return count($this->waiting) >= self::BATCH_OPERATIONS || $this->bytes >= self::BATCH_BYTES;
    }

    public function waiting(): int
    {
        return count($this->waiting);
    }

    public function flush(Stop $stop, float $grace): void
    {
        try {
            while ($this->waiting !== []) {
                $batch = array_slice($this->waiting, 0, $this->size);
                try {
                    $this->post($batch, $stop, $grace);
                    $this->backoff->reset();
                } catch (RetryLaterException $reason) { // the same batch again
                    $this->backoff->pause($reason, $stop, $grace, $this->log);
                }
            }
        } catch (RefusedException | StoppedException $error) {
            throw new RefusedException($error->getMessage() . '; ' . count($this->waiting) . ' operations are not delivered');
        }
        $this->bytes = 0;
    }

    /**
     * Send a request, and again with a fresh token if the agent refuses the token of a function. Return the answer and its body.
     *
     * @return array{Answer, string}
     */
    private function authorized(string $body, Stop $stop, float $grace): array
    {
        $tokens = $this->ops->tokens;
        $token = $tokens->current();
        $found = $this->ask($body, $token, $stop, $grace);
        return $found[0]->status === 401 && $tokens->isFunction()
            ? $this->ask($body, $tokens->current($token), $stop, $grace)
            : $found;
    }

    /**
     * Send a request. Return the answer and its body.
     *
     * @return array{Answer, string}
     */
    private function ask(string $body, string $token, Stop $stop, float $grace): array
    {
        $deadline = Clock::now() + $this->timeout;
        $headers = ['Content-Type: application/x-ndjson', 'Content-Length: ' . strlen($body)];
        $headers = [...$headers, ...$this->ops->authorization($this->ops, $token)];
        $answer = new Answer('POST', $this->ops, $headers, $body, $deadline, $stop, $grace);
        try {
            return [$answer, $answer->body(self::MAX_ANSWER_BYTES, $deadline)];
        } finally {
            $answer->close();
        }
    }

    /**
     * Send a request, and remove the operations that the answer settles from the queue.
     *
     * Throw RetryLaterException, RefusedException or StoppedException.
     *
     * @param list<array{string, string}> $batch
     */
    private function post(array $batch, Stop $stop, float $grace): void
    {
        [$answer, $said] = $this->authorized(implode("\n", array_column($batch, 1)), $stop, $grace);
        $count = count($batch);
        $status = $answer->status;
        $document = json_decode($said, true);
        if ($status === 200 && is_array($document) && ($document['ingested'] ?? null) === $count) {
            $this->settle($count);
            $this->size = min(self::BATCH_OPERATIONS, 2 * $this->size);
        } elseif (intdiv($status, 100) === 2) {
            throw new RefusedException(
                "the address is no agent: HTTP $status does not confirm that $count operations were stored"
            );
        } elseif (intdiv($status, 100) === 3) {
            $to = $this->ops->follow($answer->headers['location'] ?? '')?->shown() ?? 'nowhere';
            throw new RefusedException("HTTP $status redirects to $to: use this address if it is the agent's");
        } elseif ($answer->isTemporary()) {
            throw new RetryLaterException($answer->describe($said), $answer->retryAfter());
        } elseif ($status === 413 && $count === 1) {
            ($this->rejected)($batch[0][0], $answer->describe($said), 1);
            $this->settle(1);
        } elseif ($status === 413) {
            $this->size = intdiv($count, 2);
        } elseif ($status === 400 && ($refused = self::refusedLines($document, $count)) !== []) {
            $first = min(array_keys($refused));
            ($this->rejected)($batch[$first][0], $refused[$first], count($refused));
            $this->settle($count, array_values(array_diff_key($batch, $refused)));
        } else {
            throw new RefusedException('the agent refuses: ' . $this->ops->tokens->refusal($answer, $said));
        }
    }

    /**
     * Remove the first operations from the queue, and put $again back.
     *
     * @param list<array{string, string}> $again
     */
    private function settle(int $count, array $again = []): void
    {
        array_splice($this->waiting, 0, $count, $again);
    }

    /**
     * Return the lines that a problem document names, counted from 0, with the reasons. Return nothing if the document names
     * none, or a line that does not exist.
     *
     * @return array<int, string>
     */
    private static function refusedLines(mixed $problem, int $lines): array
    {
        $refused = [];
        foreach (is_array($problem) && is_array($problem['errors'] ?? null) ? $problem['errors'] : [] as $error) {
            $line = is_array($error) ? $error['line'] ?? null : null;
            if (!is_int($line) || $line < 1 || $line > $lines) {
                return [];
            }
            $words = array_filter([$error['field'] ?? '', $error['reason'] ?? ''], 'is_string');
            $refused[$line - 1] = implode(': ', $words);
        }
        return $refused;
    }
}
