<?php

declare(strict_types=1);

namespace Oplog;

/** Pauses between attempts: they double from the first to the longest, with jitter. */
final class Backoff
{
    private const LONGEST_RETRY_AFTER = 3600.0;

    private float $next;

    /** Both are seconds. Throw \InvalidArgumentException unless 0 < $first <= $last. */
    public function __construct(private readonly float $first = 1.0, private readonly float $last = 30.0)
    {
        if (!($first > 0 && $last >= $first)) {
            throw new \InvalidArgumentException('give two numbers of seconds above 0, the second not less than the first');
        }
        $this->next = $first;
    }

    /** Start over with the first pause. */
    public function reset(): void
    {
        $this->next = $this->first;
    }

    /** Return the seconds before the next attempt. They are not less than the agent asked for. */
    public function next(float $atLeast): float
    {
        $own = min($this->last, $this->next * (1 + self::random()));
        $this->next = min(max($this->last / 2, $this->first), 2 * $this->next);
        return max($own, min(self::LONGEST_RETRY_AFTER, $atLeast * (1 + 0.3 * self::random())));
    }

    /**
     * Log the reason and wait. Throw StoppedException as soon as the pause would end more than $grace seconds after a stop.
     *
     * @param \Closure(string): void $log
     */
    public function pause(RetryLaterException $reason, Stop $stop, float $grace, \Closure $log): void
    {
        $pause = $this->next($reason->atLeast);
        $log(sprintf('%s; trying again in %.1f s', $reason->getMessage(), $pause));
        $until = Clock::now() + $pause;
        while (($left = $until - Clock::now()) > 0) {
            if ($stop->deadline($grace) < $until) {
                throw new StoppedException('stopped: ' . $reason->getMessage());
            }
            usleep((int) (1e6 * min($left, 0.5)) + 1);
        }
    }

    /** Return the seconds of a Retry-After header, given in seconds or as an HTTP date: at most an hour, 0 without a valid value. */
    public static function retryAfter(string $header): float
    {
        if (preg_match('/^[0-9]+$/D', $header)) {
            return min(self::LONGEST_RETRY_AFTER, (float) $header);
        }
        $text = (string) preg_replace('/^[a-z]+,? /i', '', $header); // a wrong day of the week would move the date
        foreach (['d M Y H:i:s \G\M\T', 'd-M-y H:i:s \G\M\T', 'M d H:i:s Y', 'M  j H:i:s Y'] as $format) {
            $date = \DateTimeImmutable::createFromFormat("!$format", $text, new \DateTimeZone('UTC'));
            if ($date !== false) {
                return max(0.0, min(self::LONGEST_RETRY_AFTER, $date->getTimestamp() - microtime(true)));
            }
        }
        return 0.0;
    }

    /** Return a number from 0 to 1. */
    private static function random(): float
    {
        return mt_rand() / mt_getrandmax();
    }
}
