<?php

declare(strict_types=1);

namespace Oplog;

/** Gives the token of each request: a constant one, those of a function, or none. */
final class Tokens
{
    private readonly ?\Closure $function;
    private string $last = ''; // the only token, or the last one of the function

    /** Throw \InvalidArgumentException for a token that a header cannot hold. */
    public function __construct(string|callable|null $given)
    {
        $this->function = $given === null || is_string($given) ? null : $given(...);
        if (is_string($given)) {
            $this->last = self::checked($given) ?? throw new \InvalidArgumentException(self::rule());
        }
    }

    public function isFunction(): bool
    {
        return $this->function !== null;
    }

    public function isGiven(): bool
    {
        return $this->isFunction() || $this->last !== '';
    }

    /**
     * Return the last token, unless there is none yet or it is the refused one. Return '' if none was given. Throw
     * RetryLaterException if the function fails.
     */
    public function current(string $refused = ''): string
    {
        return $this->last === $refused ? $this->fresh() : $this->last;
    }

    /** Call the function. Without a function return the only token. Throw RetryLaterException if the function fails. */
    public function fresh(): string
    {
        if ($this->function === null) {
            return $this->last;
        }
        try {
            $token = self::checked(($this->function)());
        } catch (\Exception $error) {
            throw new RetryLaterException(Text::oneLine("no token: {$error->getMessage()}"), previous: $error);
        }
        return $this->last = $token ?? throw new RetryLaterException('no token: ' . self::rule());
    }

    /** Return an error answer as one line. It tells whether a token was refused. */
    public function refusal(Answer $answer, string $body): string
    {
        $said = $answer->describe($body);
        return $answer->status === 401 && $this->isGiven() ? "the token was refused: $said" : $said;
    }

    /** Return the token, or null if a header cannot hold it. */
    private static function checked(mixed $token): ?string
    {
        $text = is_string($token) ? trim($token) : '';
        return preg_match('/^[!-~]+$/D', $text) ? $text : null;
    }

    private static function rule(): string
    {
        return 'the token must be printable ASCII text without a space';
    }
}
