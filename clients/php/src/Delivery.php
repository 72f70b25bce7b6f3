<?php

declare(strict_types=1);

namespace Oplog;

/** Brings operations to an agent. */
interface Delivery
{
    /**
     * Send an operation, or keep it for a batch. Return whether a batch is full: flush it now. $label names the operation in
     * messages. Throw InvalidOperationException if it cannot be sent.
     */
    public function send(string $label, string $json): bool;

    /**
     * Return when all operations are delivered or rejected. Throw RefusedException if they are not, also $grace seconds after
     * $stop was requested.
     */
    public function flush(Stop $stop, float $grace): void;

    /** Return the number of operations that are neither delivered nor rejected. */
    public function waiting(): int;
}
