<?php

declare(strict_types=1);

namespace Oplog;

final class Clock
{
    /** Return monotonic seconds. */
    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}
