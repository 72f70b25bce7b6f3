<?php

declare(strict_types=1);

namespace Oplog;

/** A request to stop, for calls that wait. A signal handler may make it. */
final class Stop
{
    private float $requestedAt = INF; // monotonic seconds

    public function request(): void
    {
        $this->requestedAt = min($this->requestedAt, Clock::now());
    }

    public function isRequested(): bool
    {
        return $this->requestedAt < INF;
    }

    /** Return the time at which waiting ends if it may go on for $grace seconds after the request; INF without a request. */
    public function deadline(float $grace): float
    {
        return $this->requestedAt + $grace;
    }

    /** Throw StoppedException if the stop was requested $grace seconds ago. */
    public function check(float $grace): void
    {
        if (Clock::now() >= $this->deadline($grace)) {
            throw new StoppedException('stopped');
        }
    }
}
