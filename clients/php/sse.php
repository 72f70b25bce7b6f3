<?php
// Server-sent events from bytes, as the WHATWG standard says. Needs cli.php.
declare(strict_types=1);

// An operation has at most 64 KiB as it is sent; escaping and "ref" make it a few times larger, never this large.
const MAX_BLOCK_BYTES = 1 << 20;

/** The fields of one event, up to a blank line; null: the field is missing. */
final class Block
{
    public ?string $id = null;
    public string $event = '';
    public ?string $data = null;
}

final class Parser
{
    private string $line = ''; // has begun
    private bool $afterCR = false; // a \n now belongs to the line before
    private bool $begun = false; // a byte order mark is none any more
    private int $size = 0; // bytes of the block's lines until now
    private Block $block;

    public function __construct()
    {
        $this->block = new Block();
    }

    /** @return iterable<Block> each as soon as its blank line has come */
    public function feed(string $chunk): iterable
    {
        for ($at = 0; $at < strlen($chunk); $at++) { // past the line's end
            if ($this->afterCR && $chunk[$at] === "\n") {
                $this->afterCR = false;
                continue;
            }
            $length = strcspn($chunk, "\r\n", $at);
            $this->line .= substr($chunk, $at, $length);
            $at += $length;
            if ($this->size + strlen($this->line) > MAX_BLOCK_BYTES) {
                throw new Refused('a block of the stream has more than 1 MB');
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
                $this->block = new Block();
                $this->size = 0;
            } elseif ($line[0] !== ':') {
                $this->field($line);
            }
        }
    }

    private function field(string $line): void
    {
        if (!preg_match('//u', $line)) {
            throw new Refused('a line of the stream is not UTF-8');
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
