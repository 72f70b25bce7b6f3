<?php

declare(strict_types=1);

namespace Oplog;

/**
 * Sends operations to an agent: over HTTP at least once, in order and in batches; over UDP without any confirmation.
 *
 * Over HTTP operations wait in memory until 1,000 of them or 1 MiB have come, or until flush(). Call close() at the end. A
 * producer that is destroyed before flushes for at most 5 s, and triggers E_USER_WARNING if operations are lost.
 */
final class Producer
{
    private const CLOSE_SECONDS = 30.0; // after a stop: time to send the operations that wait
    private const DESTRUCT_SECONDS = 5.0;

    private readonly Delivery $delivery;
    private readonly int $process;
    private bool $closed = false;
    private bool $isTold = false; // an exception has told that the operations that wait are not delivered

    /**
     * Throw \InvalidArgumentException for a bad argument, and RefusedException for an unknown UDP host.
     *
     * @param string $url udp://host:port, http://host:port or https://host:port; credentials in it override $password
     * @param float $timeout seconds until an answer must have come, its body included
     * @param ?callable(string): void $log receives a line for each failed attempt; null: stderr
     * @param ?callable(string, string, int): void $rejected receives the label and the reason of the first operation that
     *     the agent rejects in a request, and the number of rejected ones; null: they are logged
     * @param Stop $stop after this request operations that wait are sent for at most 30 s
     * @param string|callable(): string|null $token instead of a password; a function returns a fresh token, and is called before
     *     the first request, and again if the agent refuses its token; if it throws an \Exception, it is tried again after a pause
     */
    public function __construct(
        string $url,
        string $password = '',
        float $timeout = 30.0,
        Backoff $backoff = new Backoff(),
        ?callable $log = null,
        ?callable $rejected = null,
        private readonly Stop $stop = new Stop(),
        string|callable|null $token = null,
    ) {
        $address = Address::parse($url, ['udp', 'http', 'https'], $password, new Tokens($token))
            ?? throw new \InvalidArgumentException('the address must be udp://host:port, http://host:port or https://host:port');
        if (!($timeout > 0)) {
            throw new \InvalidArgumentException('timeout must be above 0');
        }
        $log = $log === null ? Text::tell(...) : $log(...);
        $rejected = $rejected === null
            ? fn (string $label, string $reason, int $count) => $log(self::describe($label, $reason, $count))
            : $rejected(...);
        $this->delivery = $address->scheme === 'udp'
            ? new UdpDelivery($address)
            : new HttpDelivery($address->ops(''), $timeout, $backoff, $log, $rejected);
        $this->process = (int) getmypid();
    }

    /** Return a sentence about rejected operations. */
    public static function describe(string $label, string $reason, int $count): string
    {
        return "$label is rejected: $reason" . ($count > 1 ? " (the agent refuses $count operations of this request)" : '');
    }

    /**
     * Send an operation. Throw as sendJson() does.
     *
     * @param string $event insert, update or delete
     * @param list<string> $parents keys of related objects, such as "user/x3kd2"
     * @param ?\DateTimeInterface $timestamp time of the change; null: when the agent receives the operation
     */
    public function send(
        string $event,
        string $type,
        string $id,
        array $parents = [],
        ?\DateTimeInterface $timestamp = null,
    ): void {
        $operation = ['event' => $event, 'type' => $type, 'id' => $id, 'parents' => array_values($parents)];
        if ($timestamp !== null) {
            $operation['timestamp'] = $timestamp->format('Y-m-d\TH:i:s.vP');
        }
        try {
            $json = json_encode($operation, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE);
        } catch (\JsonException $error) {
            throw new InvalidOperationException($error->getMessage());
        }
        $this->sendJson($json, "$type/$id");
    }

    /**
     * Send an operation given as a JSON object. $label names it in messages.
     *
     * Throw InvalidOperationException for an operation that an agent would refuse, and over UDP for one that cannot be sent.
     * Throw RefusedException if a batch is full and the agent refuses it; the operations then stay with the producer.
     */
    public function sendJson(string $json, string $label): void
    {
        if ($this->closed) {
            throw new RefusedException('the producer is closed');
        }
        OperationRules::check($json);
        $this->isTold = false;
        if ($this->delivery->send($label, strtr($json, "\r\n", '  '))) { // JSON has line breaks only between its parts
            $this->flush();
        }
    }

    /** Wait until all operations are durable or rejected. Throw RefusedException if the agent refuses for good, or after a stop. */
    public function flush(): void
    {
        $this->isTold = true; // also by an exception of a callback
        $this->delivery->flush($this->stop, self::CLOSE_SECONDS);
    }

    /** Refuse further operations and flush. Throw RefusedException if operations are left. */
    public function close(): void
    {
        $this->closed = true;
        $this->flush();
    }

    /** Flush if nobody has, for at most 5 s. Trigger a warning if operations are lost. A forked child leaves them to its parent. */
    public function __destruct()
    {
        if ($this->isTold || $this->delivery->waiting() === 0 || getmypid() !== $this->process) {
            return;
        }
        $stop = new Stop();
        $stop->request();
        try {
            $this->delivery->flush($stop, self::DESTRUCT_SECONDS);
        } catch (OplogException $error) {
            trigger_error('a producer was not closed: ' . Text::oneLine($error->getMessage()), E_USER_WARNING);
        }
    }
}
