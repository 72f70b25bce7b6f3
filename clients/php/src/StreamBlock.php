<?php

declare(strict_types=1);

namespace Oplog;

/** Fields of one event of a stream. Null: the field is missing. */
final class StreamBlock
{
    public ?string $id = null;
    public string $event = '';
    public ?string $data = null;
}
