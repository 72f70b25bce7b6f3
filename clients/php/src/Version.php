<?php

declare(strict_types=1);

namespace Oplog;

/** Version of this package, the same as the agent's. */
final class Version
{
    public const VERSION = '0.1.0';
}
