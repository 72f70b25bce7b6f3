<?php
// The rules for operations as JSON, for both programs.
declare(strict_types=1);

/** Operations cannot be read; the message says why. */
final class Invalid extends RuntimeException
{
}

/** The fields of a JSON object without NUL and unpaired surrogates. */
function json_object(string $raw): array
{
    $object = json_decode($raw);
    if (json_last_error() !== JSON_ERROR_NONE) {
        throw new Invalid('it is no valid JSON: ' . json_last_error_msg());
    }
    if (!$object instanceof stdClass) {
        throw new Invalid('it is no JSON object');
    }
    if (preg_match('/(?<!\\\\)(?:\\\\\\\\)*+\\\\u0000/', $raw)) {
        throw new Invalid('it has a NUL');
    }
    return get_object_vars($object);
}

function text(array $fields, string $name): string
{
    if (!array_key_exists($name, $fields)) {
        throw new Invalid("$name is missing");
    }
    return is_string($fields[$name]) ? $fields[$name] : throw new Invalid("$name must be a string");
}

/** @return list<string> */
function parents(array $fields): array
{
    $parents = $fields['parents'] ?? [];
    if (!is_array($parents) || array_filter($parents, 'is_string') !== $parents) {
        throw new Invalid('parents must be a list of strings');
    }
    return $parents;
}

/** RFC 3339 with any offset as UTC with milliseconds; from year 1 to 9999. */
function utc(string $text): string
{
    $pattern = '/^(\d{4})-(\d\d)-(\d\d)[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.(\d+))?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/Di';
    if (preg_match($pattern, $text, $match) && checkdate((int) $match[2], (int) $match[3], max(1, (int) $match[1]))) {
        $whole = str_replace('.' . ($match[4] ?? ''), '', strtoupper($text)); // PHP reads few digits after the point
        $time = (new DateTimeImmutable($whole))->setTimezone(new DateTimeZone('UTC'));
        if (preg_match('/^(?!0000)\d{4}-/', $time->format('Y-'))) {
            return $time->format('Y-m-d\TH:i:s.') . substr(($match[4] ?? '') . '000', 0, 3) . 'Z';
        }
    }
    throw new Invalid('timestamp must be RFC 3339 with a time zone, such as 2014-11-06T11:04:39.041Z');
}
