<?php

declare(strict_types=1);

namespace Oplog;

/** Base class of all exceptions of this package. */
class OplogException extends \RuntimeException
{
}
