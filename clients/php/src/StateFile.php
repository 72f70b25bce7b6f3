<?php

declare(strict_types=1);

namespace Oplog;

/** File that keeps the position of a consumer. */
final class StateFile
{
    public const SAVE_INTERVAL = 1.0; // seconds

    public string $position = ''; // as it was read; empty: there is no file yet
    private string $path;
    /** @var resource locked until close() */
    private $lock;
    private string $saved;
    private float $triedAt = 0.0;
    private bool $failing = false;

    /**
     * Lock the file against other processes, read it and check that it can be replaced. Throw RefusedException otherwise.
     *
     * @param \Closure(string): void $log
     */
    public function __construct(string $path, private readonly \Closure $log)
    {
        $this->path = $this->resolve($path);
        $this->lock = @fopen("$this->path.lock", 'c')
            ?: throw new RefusedException("the state file $path cannot be written: " . Text::lastError());
        if (!flock($this->lock, LOCK_EX | LOCK_NB)) {
            throw new RefusedException("the state file $path is used by another process");
        }
        if (@lstat($this->path) !== false) {
            $stored = @file_get_contents($this->path, false, null, 0, 100);
            if ($stored === false) {
                throw new RefusedException("the state file $path cannot be read: " . Text::lastError());
            }
            $this->position = preg_replace('/\n$/D', '', $stored);
            if (!Event::isId($this->position)) {
                throw new RefusedException("the state file $path does not hold a position: move it away to start over");
            }
        }
        $this->saved = $this->position;
        try {
            $this->replace(null);
        } catch (RefusedException $error) {
            throw new RefusedException("the state file $path cannot be written: {$error->getMessage()}");
        }
    }

    /** Save, but at most once in SAVE_INTERVAL. Log the first of consecutive failures. */
    public function saveSometimes(string $position): void
    {
        if ($position === $this->saved || Clock::now() - $this->triedAt < self::SAVE_INTERVAL) {
            return;
        }
        $this->triedAt = Clock::now();
        try {
            $this->save($position);
            $this->failing = false;
        } catch (RefusedException $error) {
            $this->failing || ($this->log)("{$error->getMessage()}; trying again");
            $this->failing = true;
        }
    }

    /** Save the position. Throw RefusedException if that fails. */
    public function save(string $position): void
    {
        if ($position === $this->saved) {
            return;
        }
        try {
            $this->replace($position);
        } catch (RefusedException $error) {
            throw new RefusedException("the position could not be saved: {$error->getMessage()}");
        }
        $this->saved = $position;
    }

    /** Return the absolute path without links: later changes of links do not move the file. */
    private function resolve(string $path): string
    {
        $found = realpath($path);
        if ($found !== false) {
            return is_file($found) ? $found : throw new RefusedException("the state file $path cannot be read: it is not a regular file");
        }
        if (@lstat($path) !== false) {
            throw new RefusedException("the state file $path cannot be read: it is a link that leads nowhere");
        }
        return str_starts_with($path, '/') ? $path : getcwd() . "/$path";
    }

    /** Replace the file atomically: a crash leaves the old position or the new one. Null: only check that it is possible. */
    private function replace(?string $position): void
    {
        error_clear_last();
        $new = "$this->path." . getmypid() . '.' . bin2hex(random_bytes(4)) . '.new';
        $file = @fopen($new, 'x') ?: throw new RefusedException(Text::lastError());
        $written = @fwrite($file, (string) $position) === strlen((string) $position) && @fsync($file);
        $written = fclose($file) && $written;
        if (!$written || $position === null || !@rename($new, $this->path)) {
            $reason = Text::lastError();
            @unlink($new);
            if ($position !== null || !$written) {
                throw new RefusedException($reason);
            }
        }
    }

    /** Release the lock. */
    public function close(): void
    {
        fclose($this->lock);
    }
}
