<?php

declare(strict_types=1);

namespace Oplog;

/** Text of messages. */
final class Text
{
    private const MAX_BYTES = 1000;

    /** Return foreign text as one printable line. Shorten it to 1,000 bytes. */
    public static function oneLine(string $text): string
    {
        $text = preg_replace('/[\p{C}\p{Zl}\p{Zp}]+/u', ' ', $text) ?? (string) preg_replace('/[^\x20-\x7e]+/', '?', $text);
        return strlen($text) > self::MAX_BYTES ? substr($text, 0, self::MAX_BYTES) . '...' : $text;
    }

    /** Return the reason of the last silenced warning, without the name of its function. */
    public static function lastError(): string
    {
        $message = error_get_last()['message'] ?? 'unknown error';
        return (string) preg_replace('/^\w+\(.*?\): (Failed to open stream: )?/', '', $message);
    }

    /** Write a line to stderr. */
    public static function tell(string $message): void
    {
        @file_put_contents('php://stderr', self::oneLine($message) . "\n");
    }
}
