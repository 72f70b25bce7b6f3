<?php

declare(strict_types=1);

namespace Oplog;

/** The request is tried again, but not before $atLeast seconds have passed. */
final class RetryLaterException extends OplogException
{
    public function __construct(string $message, public readonly float $atLeast = 0.0, ?\Throwable $previous = null)
    {
        parent::__construct($message, 0, $previous);
    }
}
