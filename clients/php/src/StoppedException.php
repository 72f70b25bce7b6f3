<?php

declare(strict_types=1);

namespace Oplog;

/** A stop was requested while the package waited. */
final class StoppedException extends OplogException
{
}
