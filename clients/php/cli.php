<?php
// Shared by consumer.php and producer.php: errors, flags, signals and pauses.
declare(strict_types=1);

/** Trying again does not change this. */
final class Refused extends RuntimeException
{
}

/** It passes by itself: try again, but not within $atLeast seconds. */
final class Later extends RuntimeException
{
    public function __construct(string $message, public readonly float $atLeast = 0.0)
    {
        parent::__construct($message);
    }
}

/** A signal asks the program to end. */
final class Stopped extends RuntimeException
{
}

ini_set('display_errors', '0'); // everything is told below
ini_set('log_errors', '0');
set_error_handler(function (int $severity, string $message): bool {
    if (!(error_reporting() & $severity)) {
        return false; // silenced by @; error_get_last() has it
    }
    if ($severity & (E_DEPRECATED | E_USER_DEPRECATED)) {
        return true;
    }
    throw new ErrorException($message, 0, $severity);
});
set_exception_handler(function (Throwable $error): void {
    for (; $error !== null; $error = $error->getPrevious()) { // there are two when the position could not be saved, either
        tell($error->getMessage());
    }
    exit(1);
});
register_shutdown_function(function (): void {
    $error = error_get_last();
    if ($error !== null && ($error['type'] & (E_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR))) {
        fwrite(STDERR, plain($error['message']) . "\n"); // PHP ends with status 255
    }
});

function tell(string $message): void
{
    @fwrite(STDERR, plain($message) . "\n");
}

function fail(int $status, string $message): never
{
    tell($message);
    exit($status);
}

/** Foreign text made fit for one line of a terminal. */
function plain(string $text): string
{
    $text = preg_replace('/[\p{C}\p{Zl}\p{Zp}]+/u', ' ', $text) ?? (string) preg_replace('/[^\x20-\x7e]+/', '?', $text);
    return strlen($text) > 1000 ? substr($text, 0, 1000) . '...' : $text;
}

/** The reason of the last silenced warning, without the function's name. */
function last_error(): string
{
    return (string) preg_replace('/^\w+\(.*?\): (Failed to open stream: )?/', '', error_get_last()['message'] ?? 'unknown error');
}

/** Monotonic seconds. */
function now(): float
{
    return hrtime(true) / 1e9;
}

/**
 * Reads --name=value and, for a default of false, --name. A mistake ends the program with status 2 and a sentence.
 *
 * @param array<string, string|false> $defaults
 * @return array<string, string|bool>
 */
function flags(array $arguments, array $defaults): array
{
    $given = $defaults;
    foreach ($arguments as $argument) {
        if ($argument === '--help' || $argument === '-h') {
            foreach ($defaults as $name => $default) {
                echo $default === false ? "  --$name\n" : "  --$name=... (default: '$default')\n";
            }
            exit(0);
        }
        [$name, $value] = explode('=', $argument, 2) + [1 => null];
        $default = $defaults[substr($name, 2)] ?? null;
        if (!str_starts_with($name, '--') || $default === null) {
            usage("$name is no flag of this program");
        }
        if (($default === false) !== ($value === null)) {
            usage($default === false ? "$name takes no value" : "$name needs a value: $name=...");
        }
        $given[substr($name, 2)] = $value ?? true;
    }
    return $given;
}

function usage(string $message): never
{
    fail(2, "$message; see --help");
}

/** Seconds from a flag; fractions are allowed. */
function seconds(string $flag, string $text): float
{
    if (!is_numeric($text) || !((float) $text > 0 && (float) $text <= 1e6)) {
        usage("--$flag: give a number of seconds above 0 and up to 1000000");
    }
    return (float) $text;
}

/** SIGTERM and SIGINT: the first one asks to end, the second one kills. Without the extension pcntl the first one kills. */
final class Signals
{
    public static float $stoppedAt = INF;

    public static function watch(): void
    {
        if (!function_exists('pcntl_signal')) {
            return;
        }
        pcntl_async_signals(true);
        $stop = function (): void {
            self::$stoppedAt = now();
            pcntl_signal(SIGTERM, SIG_DFL);
            pcntl_signal(SIGINT, SIG_DFL);
        };
        pcntl_signal(SIGTERM, $stop);
        pcntl_signal(SIGINT, $stop);
        pcntl_signal(SIGXFSZ, SIG_IGN); // writing then fails with an error, which is handled
    }

    /** Ends the program, by an exception, when a signal came so many seconds ago. */
    public static function check(float $grace): void
    {
        if (now() - self::$stoppedAt >= $grace) {
            throw new Stopped('ended by a signal');
        }
    }
}

/** The pauses between attempts, in seconds: they double from the first to the longest, with jitter. */
final class Backoff
{
    private float $next;

    private function __construct(private float $first, private float $last)
    {
        $this->next = $first;
    }

    public static function of(string $flag): self
    {
        $pauses = explode(',', $flag);
        if (count($pauses) !== 2) {
            usage('--backoff: give two numbers of seconds such as 1,30');
        }
        [$first, $last] = array_map(fn (string $text): float => seconds('backoff', $text), $pauses);
        if ($first > $last) {
            usage('--backoff: the second number must not be less than the first');
        }
        return new self($first, $last);
    }

    public function reset(): void
    {
        $this->next = $this->first;
    }

    /** Tells why, and waits, at least for as long as the agent asked for. A signal ends it unless $grace seconds suffice. */
    public function pause(Later $reason, float $grace): void
    {
        $own = min($this->last, $this->next * (1 + mt_rand() / mt_getrandmax()));
        $this->next = min(max($this->last / 2, $this->first), 2 * $this->next);
        $pause = max($own, min(3600.0, $reason->atLeast * (1 + 0.3 * mt_rand() / mt_getrandmax())));
        tell(sprintf('%s; trying again in %.1f s', $reason->getMessage(), $pause));
        $until = now() + $pause;
        while (($left = $until - now()) > 0) {
            if (Signals::$stoppedAt + $grace < $until) {
                throw new Stopped('ended by a signal: ' . $reason->getMessage());
            }
            usleep((int) (1e6 * min($left, 0.5)) + 1);
        }
    }
}

/** Seconds from a Retry-After header, in seconds or as an HTTP date: at most an hour, 0 if there is none. */
function retry_after(string $header): float
{
    if (preg_match('/^[0-9]+$/D', $header)) {
        return min(3600.0, (float) $header);
    }
    $text = (string) preg_replace('/^[a-z]+,? /i', '', $header); // a wrong day of the week would move the date
    foreach (['d M Y H:i:s \G\M\T', 'd-M-y H:i:s \G\M\T', 'M d H:i:s Y', 'M  j H:i:s Y'] as $format) {
        $date = DateTimeImmutable::createFromFormat("!$format", $text, new DateTimeZone('UTC'));
        if ($date !== false) {
            return max(0.0, min(3600.0, $date->getTimestamp() - microtime(true)));
        }
    }
    return 0.0;
}
