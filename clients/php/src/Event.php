<?php

declare(strict_types=1);

namespace Oplog;

/** An operation, reset or live. reset and live have only a position and a name. */
final class Event
{
    /** @param list<string> $parents */
    private function __construct(
        public readonly string $position, // a consumer that starts here gets the events after this one
        public readonly string $name, // insert, update, delete, reset or live
        public readonly string $type = '',
        public readonly string $id = '',
        public readonly array $parents = [],
        public readonly string $timestamp = '', // RFC 3339 in UTC with milliseconds
    ) {
    }

    /** Return null for an event of an unknown name. Throw RefusedException if the operation cannot be read. */
    public static function fromBlock(StreamBlock $block, string $position): ?self
    {
        if ($block->event === 'reset' || $block->event === 'live') {
            return new self($position, $block->event);
        }
        if (!in_array($block->event, ['insert', 'update', 'delete'], true)) {
            return null;
        }
        try {
            $fields = OperationRules::object($block->data ?? '');
            return new self(
                $position,
                $block->event,
                OperationRules::text($fields, 'type'),
                OperationRules::text($fields, 'id'),
                OperationRules::parents($fields),
                OperationRules::utc(OperationRules::text($fields, 'timestamp')),
            );
        } catch (InvalidOperationException $error) {
            throw new RefusedException("the operation $position cannot be read: {$error->getMessage()}");
        }
    }

    public function isOperation(): bool
    {
        return $this->name !== 'reset' && $this->name !== 'live';
    }

    /** Return the key of the object, "type/id". */
    public function key(): string
    {
        return "$this->type/$this->id";
    }

    /** Return whether the text is an event id or a replication id. */
    public static function isId(string $text): bool
    {
        return preg_match('/^(?:[0-9]{1,13}|[0-9a-f]{24})$/D', $text) === 1;
    }
}
