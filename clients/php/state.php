<?php
// The file that keeps a consumer's position. Needs cli.php.
declare(strict_types=1);

const SAVE_INTERVAL = 1.0; // seconds

final class StateFile
{
    public string $position = ''; // as it was found; empty: there is no file yet
    private string $path;
    /** @var resource held until the process ends */
    private $lock;
    private string $saved;
    private float $triedAt = 0.0;
    private bool $failing = false;

    /** Locks the file against other processes and makes sure that it can be read and replaced. Throws Refused. */
    public function __construct(string $path)
    {
        $this->path = $this->resolve($path);
        $this->lock = @fopen("$this->path.lock", 'c')
            ?: throw new Refused("the state file $path cannot be written: " . last_error());
        if (!flock($this->lock, LOCK_EX | LOCK_NB)) {
            throw new Refused("the state file $path is used by another process");
        }
        if (@lstat($this->path) !== false) {
            $stored = @file_get_contents($this->path, false, null, 0, 100);
            if ($stored === false) {
                throw new Refused("the state file $path cannot be read: " . last_error());
            }
            $this->position = preg_replace('/\n$/D', '', $stored);
            if (!is_event_id($this->position)) {
                throw new Refused("the state file $path holds no position: move it away to begin anew");
            }
        }
        $this->saved = $this->position;
        try {
            $this->replace(null);
        } catch (Refused $error) {
            throw new Refused("the state file $path cannot be written: {$error->getMessage()}");
        }
    }

    /** Saves at most once in SAVE_INTERVAL. Trouble is told once until it is over. */
    public function saveSometimes(string $position): void
    {
        if ($position === $this->saved || now() - $this->triedAt < SAVE_INTERVAL) {
            return;
        }
        $this->triedAt = now();
        try {
            $this->save($position);
            $this->failing = false;
        } catch (Refused $error) {
            $this->failing || tell("{$error->getMessage()}; trying again");
            $this->failing = true;
        }
    }

    /** Throws Refused. */
    public function save(string $position): void
    {
        if ($position === $this->saved) {
            return;
        }
        try {
            $this->replace($position);
        } catch (Refused $error) {
            throw new Refused("the position could not be saved: {$error->getMessage()}");
        }
        $this->saved = $position;
    }

    /** Follows links now, so that the file stays the same whatever happens to them. */
    private function resolve(string $path): string
    {
        $found = realpath($path);
        if ($found !== false) {
            return is_file($found) ? $found : throw new Refused("the state file $path cannot be read: it is not a regular file");
        }
        if (@lstat($path) !== false) {
            throw new Refused("the state file $path cannot be read: it is a link that leads nowhere");
        }
        return str_starts_with($path, '/') ? $path : getcwd() . "/$path";
    }

    /** Replaces the file in one step, so that a crash leaves the old position or the new one; null: only tries. */
    private function replace(?string $position): void
    {
        error_clear_last();
        $new = "$this->path." . getmypid() . '.' . bin2hex(random_bytes(4)) . '.new';
        $file = @fopen($new, 'x') ?: throw new Refused(last_error());
        $written = @fwrite($file, (string) $position) === strlen((string) $position) && @fsync($file);
        $written = fclose($file) && $written;
        if (!$written || $position === null || !@rename($new, $this->path)) {
            $reason = last_error();
            @unlink($new);
            if ($position !== null || !$written) {
                throw new Refused($reason);
            }
        }
    }
}
