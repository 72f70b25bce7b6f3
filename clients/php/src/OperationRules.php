<?php

declare(strict_types=1);

namespace Oplog;

/** Rules for operations in JSON. The methods throw InvalidOperationException. */
final class OperationRules
{
    private const MAX_OPERATION_BYTES = 64 << 10;

    /** Throw InvalidOperationException for an operation that an agent would refuse. */
    public static function check(string $operation): void
    {
        if (strlen($operation) > self::MAX_OPERATION_BYTES) {
            throw new InvalidOperationException('it has more than ' . self::MAX_OPERATION_BYTES . ' bytes');
        }
        $fields = self::object($operation);
        if (!in_array(strtolower(self::text($fields, 'event')), ['insert', 'update', 'delete'], true)) {
            throw new InvalidOperationException('event must be insert, update or delete');
        }
        if (!preg_match('~^[^/,]{1,255}$~Ds', self::text($fields, 'type'))) {
            throw new InvalidOperationException("type must have 1 to 255 bytes, and neither '/' nor ','");
        }
        if (!preg_match('/^.{1,1024}$/Ds', self::text($fields, 'id'))) {
            throw new InvalidOperationException('id must have 1 to 1024 bytes');
        }
        if (in_array('', self::parents($fields), true)) {
            throw new InvalidOperationException('parents must not hold an empty string');
        }
        if (isset($fields['timestamp'])) {
            self::utc(self::text($fields, 'timestamp'));
        }
    }

    /**
     * Return the fields of a JSON object. Refuse NUL and unpaired surrogates.
     *
     * @return array<string, mixed>
     */
    public static function object(string $raw): array
    {
        $object = json_decode($raw);
        if (json_last_error() !== JSON_ERROR_NONE) {
            throw new InvalidOperationException('it is not valid JSON: ' . json_last_error_msg());
        }
        if (!$object instanceof \stdClass) {
            throw new InvalidOperationException('it is not a JSON object');
        }
        if (preg_match('/(?<!\\\\)(?:\\\\\\\\)*+\\\\u0000/', $raw)) {
            throw new InvalidOperationException('it has a NUL');
        }
        return get_object_vars($object);
    }

    /** @param array<string, mixed> $fields */
    public static function text(array $fields, string $name): string
    {
        if (!array_key_exists($name, $fields)) {
            throw new InvalidOperationException("$name is missing");
        }
        return is_string($fields[$name]) ? $fields[$name] : throw new InvalidOperationException("$name must be a string");
    }

    /**
     * @param array<string, mixed> $fields
     * @return list<string>
     */
    public static function parents(array $fields): array
    {
        $parents = $fields['parents'] ?? [];
        if (!is_array($parents) || array_filter($parents, 'is_string') !== $parents) {
            throw new InvalidOperationException('parents must be a list of strings');
        }
        return $parents;
    }

    /** Return an RFC 3339 time with any offset as UTC with milliseconds. Years are 1 to 9999. */
    public static function utc(string $text): string
    {
        $pattern = '/^(\d{4})-(\d\d)-(\d\d)[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.(\d+))?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/Di';
        if (preg_match($pattern, $text, $match) && checkdate((int) $match[2], (int) $match[3], max(1, (int) $match[1]))) {
            $whole = str_replace('.' . ($match[4] ?? ''), '', strtoupper($text)); // PHP reads few digits after the point
            $time = (new \DateTimeImmutable($whole))->setTimezone(new \DateTimeZone('UTC'));
            if (preg_match('/^(?!0000)\d{4}-/', $time->format('Y-'))) {
                return $time->format('Y-m-d\TH:i:s.') . substr(($match[4] ?? '') . '000', 0, 3) . 'Z';
            }
        }
        throw new InvalidOperationException('timestamp must be RFC 3339 with a time zone, such as 2014-11-06T11:04:39.041Z');
    }
}
