<?php

declare(strict_types=1);

namespace Oplog;

/** Trying again does not help: the agent refuses, the address is not an agent's, or a file cannot be used. */
final class RefusedException extends OplogException
{
}
