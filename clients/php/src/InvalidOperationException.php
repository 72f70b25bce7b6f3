<?php

declare(strict_types=1);

namespace Oplog;

/** An agent would refuse the operation. The message says why. */
final class InvalidOperationException extends OplogException
{
}
