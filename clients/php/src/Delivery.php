<?php

declare(strict_types=1);

namespace Oplog;

/** Brings operations to an agent. */
interface Delivery
{
    /** Send an operation, or keep it for a batch. $label names it in messages. Throw InvalidOperationException if it cannot be sent. */
    public function send(string $label, string $json): void;

    /** Return when all operations are delivered or rejected. Throw RefusedException if they are not. */
    public function flush(): void;
}
