<?php

declare(strict_types=1);

namespace Oplog;

/** Follows an agent. It reconnects by itself and resumes after the last event that was handled. */
final class Consumer
{
    private const MAX_ERROR_BYTES = 64 << 10;
    private const MAX_REDIRECTS = 20;
    private const MAX_SHARDS = 256;
    private const LIVELY_SECONDS = 5.0; // after this life of a connection the pauses start over

    private Address $ops;
    private string $position; // after the last handled event
    private ?StateFile $state = null;
    private \Closure $log;
    private bool $unknownLogged = false; // an unknown event name was logged

    /**
     * Open the state file, but do not connect.
     *
     * Throw \InvalidArgumentException for a bad argument, and RefusedException if the state file cannot be used.
     *
     * @param string $url the agent, such as http://localhost:8042; credentials in it override $password
     * @param list<string> $types only operations of these types, in any case; empty: all
     * @param list<string> $parents only operations with one of these parents; empty: all
     * @param string $start event id to start after; "0" for a copy of all objects; empty: the next operation
     * @param string $stateFile file that keeps the position; a position in it overrides $start; empty: none
     * @param float $timeout seconds until the head of an answer, and the body of an error, must have come
     * @param float $heartbeatTimeout longest silence of a connection in seconds; agents send something every 25 s
     * @param string $name name of this consumer in the agent's /status and /metrics: 1 to 100 ASCII letters, digits, ".", "_" or
     *     "-"; empty: none
     * @param ?callable(string): void $log receives a line for each failed connection; null: stderr
     * @param string|callable(): string|null $token instead of a password; a function returns a fresh token, and is called before
     *     each connection; if it throws an \Exception, or the agent refuses its token, it is tried again after a pause
     * @param string $shard only the entries of one shard: "3/8" is shard 3 of the shards 0 to 7; at most 256 shards; empty: all
     */
    public function __construct(
        string $url,
        array $types = [],
        array $parents = [],
        string $start = '',
        string $stateFile = '',
        string $password = '',
        private readonly float $timeout = 30.0,
        private readonly float $heartbeatTimeout = 40.0,
        private readonly Backoff $backoff = new Backoff(),
        ?callable $log = null,
        private readonly Stop $stop = new Stop(),
        string $name = '',
        string|callable|null $token = null,
        private readonly string $shard = '',
    ) {
        $address = Address::parse($url, ['http', 'https'], $password, new Tokens($token))
            ?? throw new \InvalidArgumentException('the address must be http://host:port or https://host:port');
        if ($start !== '' && !Event::isId($start)) {
            throw new \InvalidArgumentException('start: give an event id (up to 13 digits, or 24 lower-case hexadecimal digits)');
        }
        if (!($timeout > 0 && $heartbeatTimeout > 0)) {
            throw new \InvalidArgumentException('timeout and heartbeatTimeout must be above 0');
        }
        if (!preg_match('/^[A-Za-z0-9._-]{0,100}$/D', $name)) {
            throw new \InvalidArgumentException("name: give 1 to 100 ASCII letters, digits, '.', '_' or '-'");
        }
        if ($shard !== '' && !self::isShard($shard)) {
            throw new \InvalidArgumentException('shard: give I/N, such as 3/8, with 0 <= I < N <= ' . self::MAX_SHARDS);
        }
        $parameters = [
            'checkpoint=1',
            $name === '' ? '' : "name=$name",
            $shard === '' ? '' : "shard=$shard",
            self::filter('types', array_map(strtolower(...), $types)),
            self::filter('parents', $parents),
        ];
        $this->ops = $address->ops(implode('&', array_filter($parameters)));
        $this->log = $log === null ? Text::tell(...) : $log(...);
        $this->position = $start;
        if ($stateFile !== '') {
            $this->state = new StateFile($stateFile, $this->log);
            $this->position = $this->state->position ?: $start;
        }
    }

    /** Return the position after the last handled event; empty before the agent has sent the first position. */
    public function position(): string
    {
        return $this->position;
    }

    /** End follow() after the current event. */
    public function stop(): void
    {
        $this->stop->request();
    }

    /** Release the state file. */
    public function close(): void
    {
        $this->state?->close();
        $this->state = null;
    }

    /**
     * Call $handle for each event, in order. Return when it returns false, or after a stop.
     *
     * The position moves after $handle has returned, never before: a crash repeats events and loses none. With a state file
     * the position is saved once a second and at the end. Throw RefusedException if trying again does not help, or if the
     * position cannot be saved at the end.
     *
     * @param callable(Event): ?bool $handle
     */
    public function follow(callable $handle): void
    {
        try {
            while ($this->readConnection($handle)) {
                $this->stop->check(0);
            }
        } catch (StoppedException) {
            return;
        } finally {
            $this->state?->save($this->position);
        }
    }

    /** Read one connection to its end, and pause. Return false when the handler has enough. */
    private function readConnection(callable $handle): bool
    {
        try {
            $answer = $this->open();
            try {
                return $this->read($answer, $handle);
            } finally {
                $answer->close();
            }
        } catch (RetryLaterException $reason) {
            $this->state?->saveSometimes($this->position);
            $this->backoff->pause($reason, $this->stop, 0, $this->log);
            return true;
        }
    }

    /** Return an answer that is an event stream. Follow redirects. */
    private function open(): Answer
    {
        $token = $this->ops->tokens->fresh();
        $deadline = Clock::now() + $this->timeout;
        $headers = ['Accept: text/event-stream', 'Cache-Control: no-cache'];
        if ($this->position !== '') {
            $headers[] = "Last-Event-ID: $this->position";
        }
        $to = $this->ops;
        for ($redirects = 0; $redirects <= self::MAX_REDIRECTS; $redirects++) {
            $authorized = [...$headers, ...$this->ops->authorization($to, $token)];
            $answer = new Answer('GET', $to, $authorized, '', $deadline, $this->stop, 0);
            if (!in_array($answer->status, [301, 302, 303, 307, 308], true)) {
                return $this->checked($answer, $deadline);
            }
            $answer->close();
            $to = $to->follow($answer->headers['location'] ?? '')
                ?? throw new RefusedException("HTTP $answer->status leads nowhere");
        }
        throw new RefusedException('more than ' . self::MAX_REDIRECTS . ' redirects');
    }

    private function checked(Answer $answer, float $deadline): Answer
    {
        if (intdiv($answer->status, 100) === 2) {
            $type = $answer->headers['content-type'] ?? '';
            if ($answer->status === 200 && preg_match('~^text/event-stream\s*(;|$)~i', $type)) {
                $this->checkShard($answer->headers['oplog-shard'] ?? '');
                return $answer;
            }
            throw new RefusedException(
                "HTTP $answer->status with the content type '$type' is not an event stream: is it an agent?"
            );
        }
        $said = $this->ops->tokens->refusal($answer, $answer->body(self::MAX_ERROR_BYTES, $deadline));
        $tooManyShards = $answer->status === 409 && $this->shard !== ''; // the agent serves too many numbers of shards
        throw $answer->isTemporary() || $tooManyShards || $answer->status === 401 && $this->ops->tokens->isFunction()
            ? new RetryLaterException($said, $answer->retryAfter())
            : new RefusedException("the agent refuses: $said");
    }

    /** Throw RefusedException if an agent does not confirm the shard. An older agent ignores the parameter. */
    private function checkShard(string $confirmed): void
    {
        if ($this->shard === '' || $confirmed === $this->shard) {
            return;
        }
        throw new RefusedException($confirmed === ''
            ? 'the agent does not know shards: it is older than this client and sent everything. Upgrade the agent'
            : "the agent sent the shard '" . substr($confirmed, 0, 40) . "' instead of $this->shard");
    }

    /** Read a stream to its end, which is an exception. Return false when the handler has enough. */
    private function read(Answer $answer, callable $handle): bool
    {
        $parser = new StreamParser();
        $opened = Clock::now();
        $silentAt = $opened + $this->heartbeatTimeout;
        while (true) {
            $bytes = $answer->read(min($silentAt, Clock::now() + StateFile::SAVE_INTERVAL));
            if ($bytes === '') {
                throw new RetryLaterException('the agent ended the stream');
            }
            if ($bytes === null && Clock::now() >= $silentAt) {
                throw new RetryLaterException('the agent was silent for too long');
            }
            foreach ($parser->feed($bytes ?? '') as $block) {
                if (!$this->take($block, $handle)) {
                    return false;
                }
                $this->state?->saveSometimes($this->position);
            }
            $this->state?->saveSometimes($this->position);
            if ($bytes !== null) {
                $silentAt = Clock::now() + $this->heartbeatTimeout; // the time of the handler does not count as silence
            }
            if (Clock::now() - $opened > self::LIVELY_SECONDS) {
                $this->backoff->reset();
            }
        }
    }

    /** Handle a block, and then move the position. Return whether to go on. */
    private function take(StreamBlock $block, callable $handle): bool
    {
        $position = $block->id ?? $this->position;
        if ($block->id !== null && !Event::isId($block->id)) {
            throw new RefusedException("the stream has the id '" . substr($block->id, 0, 40) . "', which is not an event id");
        }
        $more = true;
        $event = Event::fromBlock($block, $position);
        if ($event !== null) {
            $more = $handle($event) !== false;
            $this->backoff->reset();
        } elseif (($block->event !== '' || $block->data !== null) && !$this->unknownLogged) {
            $this->unknownLogged = true;
            ($this->log)("skipping events of unknown names, such as '" . substr($block->event, 0, 40) . "'");
        }
        $this->position = $position;
        return $more;
    }

    private static function isShard(string $given): bool
    {
        return preg_match('~^(0|[1-9][0-9]{0,2})/([1-9][0-9]{0,2})$~D', $given, $match)
            && (int) $match[1] < (int) $match[2] && (int) $match[2] <= self::MAX_SHARDS;
    }

    /**
     * Return a filter as parameters, empty without values. An agent splits a single parameter at its commas, and takes repeated
     * ones as they are.
     *
     * @param list<string> $values
     */
    private static function filter(string $name, array $values): string
    {
        if (in_array('', $values, true)) {
            throw new \InvalidArgumentException("$name must not hold an empty string");
        }
        if ($values === []) {
            return '';
        }
        $hasComma = str_contains(implode('', $values), ',');
        $parameters = $hasComma ? [...$values, $values[0]] : [implode(',', $values)]; // with a comma: at least two
        return implode('&', array_map(fn (string $value): string => "$name=" . rawurlencode($value), $parameters));
    }
}
