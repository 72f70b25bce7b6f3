<?php

declare(strict_types=1);

namespace Oplog;

/** Splits a stream of server-sent events into blocks, as the WHATWG HTML standard defines. */
final class StreamParser
{
    // An operation has at most 64 KiB when it is sent. Escaping and "ref" make it a few times larger, but not this large.
    private const MAX_BLOCK_BYTES = 1 << 20;

    private string $line = ''; // its start; the end has not come yet
    private bool $afterCR = false; // a \n now belongs to the previous line
    private bool $begun = false; // a byte order mark is only removed before this
    private int $size = 0; // bytes of the block so far
    private StreamBlock $block;

    public function __construct()
    {
        $this->block = new StreamBlock();
    }

    /**
     * Yield each block as soon as its blank line has come. Throw RefusedException if the stream cannot be read.
     *
     * @return iterable<StreamBlock>
     */
    public function feed(string $chunk): iterable
    {
        for ($at = 0; $at < strlen($chunk); $at++) { // skips the end of the line
            if ($this->afterCR && $chunk[$at] === "\n") {
                $this->afterCR = false;
                continue;
            }
            $length = strcspn($chunk, "\r\n", $at);
            $this->line .= substr($chunk, $at, $length);
            $at += $length;
            if ($this->size + strlen($this->line) > self::MAX_BLOCK_BYTES) {
                throw new RefusedException('a block of the stream has more than 1 MB');
            }
            if ($at === strlen($chunk)) {
                $this->afterCR = false;
                return;
            }
            $this->afterCR = $chunk[$at] === "\r";
            $line = $this->begun ? $this->line : (string) preg_replace('/^\xef\xbb\xbf/', '', $this->line);
            $this->begun = true;
            $this->line = '';
            if ($line === '') {
                yield $this->block;
                $this->block = new StreamBlock();
                $this->size = 0;
            } elseif ($line[0] !== ':') {
                $this->field($line);
            }
        }
    }

    private function field(string $line): void
    {
        if (!preg_match('//u', $line)) {
            throw new RefusedException('a line of the stream is not UTF-8');
        }
        $this->size += strlen($line);
        [$name, $value] = explode(':', $line, 2) + [1 => ''];
        $value = str_starts_with($value, ' ') ? substr($value, 1) : $value;
        match ($name) {
            'id' => $this->block->id = $value,
            'event' => $this->block->event = $value,
            'data' => $this->block->data = $this->block->data === null ? $value : "{$this->block->data}\n$value",
            default => null,
        };
    }
}
